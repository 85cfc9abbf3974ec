"""The REST API: thin over the services. `app.create_app` puts it together."""

"""The dashboard: HTML pages made on the server over the services that the API uses, kept live by the API's event
stream.

    request ──▶ page ──▶ PageContext (context) ──▶ one handler per page ──▶ view data ──▶ templates/NAME.html

A page is a handler, a `Page` in its module's `PAGES`, a template, and its texts in `service/locales/`. A new module also needs
a line in `routes`. Nothing here knows SQL; no script comes from another server.

    overview task_* run_* timeline* queues activity settings alerts login search   pages
    page context routes render                                                     from a request to an answer
    i18n charts lists recent explanation forms                                     what several pages share
"""

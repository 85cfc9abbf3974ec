"""The dashboard: pages made on the server over the services that the API uses; live by the API's stream of events.

    request ──▶ page.dispatch ──▶ Visit ──▶ one handler per page ──▶ view data ──▶ templates/NAME.html

A page is one file here (`pages(site)` lists what it answers), one template, its words in `locales/`, and a line in
`PAGES` (`mount`). Nothing here knows SQL, and no script comes from anywhere else.
"""

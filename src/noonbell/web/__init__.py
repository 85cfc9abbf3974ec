"""The dashboard: pages made on the server over the services that the API uses; live by the API's stream of events.

    request ──▶ page.dispatch ──▶ Visit ──▶ one handler per page ──▶ view data ──▶ templates/NAME.html

A page is one file (`pages(site)` lists what it answers), one template, its words in `locales/`, and a line in `PAGES`
(`mount`). Nothing here knows SQL, and no script comes from anywhere else.

    tasks/ runs/ timeline/ queues/ activity/ settings/   a room with several pages each
    overview workers login                               a page each
    palette suggest preferences                          what every page offers
    page visit site session mount fault assets           from a request to an answer
    render times words icons badges charts lists         what pages are made of
"""

"""The jobs of a shop, which the three web applications beside this file share. A worker executes them:

noonbell worker --app shop_jobs.py:jobs --config noonbell.yaml

with `store: {url: postgresql://…, schema: noonbell}` in noonbell.yaml: the schema that the applications connect to.
"""

from noonbell import App

jobs = App("shop")


@jobs.job
def confirm(order: int) -> str:
    return f"order {order} is confirmed"

"""The jobs of a shop, which the three web applications beside this file share. A worker executes them:

noonbell worker --app examples/frameworks/shop_jobs.py:jobs --store postgresql://…
"""

from noonbell import App

jobs = App("shop")


@jobs.job
def confirm(order: int) -> str:
    return f"order {order} is confirmed"

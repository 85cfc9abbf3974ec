"""A shop on Django, in one file: an order and the job that confirms it are one commit.

    DATABASE_URL=postgresql://… python django_shop.py runserver
    DATABASE_URL=postgresql://… gunicorn --preload --workers 4 django_shop:application

In a project of your own, the App is connected in `AppConfig.ready()`; django_admin.py beside this file leads from the admin to
the dashboard of Noonbell.
"""

import json
import os
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from shop_jobs import confirm, jobs

URL = os.environ["DATABASE_URL"]
MOST = 100
place = urlsplit(URL)

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SECRET_KEY", "only-for-this-example"),
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": place.path[1:],
            "HOST": place.hostname,
            "PORT": place.port or 5432,
            "USER": place.username or "",
            "PASSWORD": place.password or "",
        }
    },
)
django.setup()


class Order(models.Model):
    item = models.TextField()
    quantity = models.IntegerField(default=1)

    class Meta:
        app_label = "shop"
        db_table = "orders"

    def __str__(self):
        return f"{self.quantity} of {self.item}"


class TooMany(Exception): ...


@csrf_exempt
@require_POST
def order(request):
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            made = Order.objects.create(item=new["item"], quantity=new.get("quantity", 1))
            run = confirm.publish_sync(order=made.id, key=f"order-{made.id}", transaction=connection)
            if made.quantity > MOST:  # the order and its job are both undone
                raise TooMany
    except TooMany:
        return JsonResponse({"detail": f"there are only {MOST}"}, status=409)
    return JsonResponse({"order": made.id, "run": run.run_id}, status=201)


urlpatterns = [path("orders", order)]

with connection.cursor() as cursor:
    cursor.execute("create table if not exists orders (id serial primary key, item text, quantity int)")
connection.close()  # a child of gunicorn --preload must not share it
jobs.connect_sync(URL, schema="noonbell")  # until the interpreter exits, or jobs.close_sync()
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line([sys.argv[0], *(sys.argv[1:] or ["runserver"])])

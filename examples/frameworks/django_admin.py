"""Django's admin with a link from each order to its job in Noonbell's dashboard.

`NOONBELL_URL` is a setting of your own: the address at which people see what `noonbell serve` serves. In `admin.py` of your application:

    admin.site.register(Order, OrderAdmin)
    admin.site.site_url = settings.NOONBELL_URL  # "View site" at the top leads to the dashboard
"""

from django.conf import settings
from django.contrib import admin
from django.utils.html import format_html
from django.utils.http import urlencode


class OrderAdmin(admin.ModelAdmin):
    list_display = ("id", "item", "job")

    @admin.display(description="Job")
    def job(self, order):
        query = urlencode({"key": f"order-{order.pk}"})  # the key that the order was published with
        return format_html('<a href="{}/runs?{}">in Noonbell</a>', settings.NOONBELL_URL, query)

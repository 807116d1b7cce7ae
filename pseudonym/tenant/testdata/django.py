"""Django with its administration, as it stands behind any server that speaks TLS for it. The argument is HOST:PORT."""
import pathlib
import sys

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import path

here = pathlib.Path(__file__).parent
settings.configure(
    SECRET_KEY="test",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["news.example"],
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    SESSION_COOKIE_SECURE=True,
    CSRF_COOKIE_SECURE=True,
    STATIC_URL="/static/",
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": here / "db.sqlite3"}},
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "django.contrib.messages"],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # which is quick
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }],
)
django.setup()
from django.contrib import admin  # after setup
from django.contrib.auth import get_user_model

urlpatterns = [path("admin/", admin.site.urls)]
call_command("migrate", verbosity=0)
get_user_model().objects.create_superuser("alice", password="secret")
call_command("runserver", sys.argv[1], use_reloader=False)

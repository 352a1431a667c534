#!/bin/sh
# Makes the ordinary role that owns memagent's tables, and its database: row-level security does not bind a superuser.
# Run once by the image of PostgreSQL, when its data directory is empty.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-postgres}" \
  --set password="$(cat "${MEMAGENT_PASSWORD_FILE:-/run/secrets/postgres_memagent}")" <<'SQL'
CREATE ROLE memagent LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD :'password';
CREATE DATABASE memagent OWNER memagent;
SQL

# The gateway as an image, of this checkout: docker build --file deploy/gateway.Dockerfile --tag aenv-gateway .
# It runs as a user who is not root. Where there is no registry: deploy/base-image --host --gateway
ARG BASE=python:3.12-slim
FROM ${BASE} AS wheel
COPY . /src
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /src

FROM ${BASE}
COPY --from=wheel /wheel /tmp/wheel
RUN set -- /tmp/wheel/*.whl && python3 -m pip install --no-cache-dir --root-user-action ignore "$1[kubernetes,redis,s3]" && rm -r /tmp/wheel \
    && mkdir --parents --mode 0700 /var/lib/aenv && chown 10001:10001 /var/lib/aenv
ENV AENV_HOME=/var/lib/aenv HOME=/var/lib/aenv
USER 10001:10001
EXPOSE 8080 8081
CMD ["aenv", "serve", "--host", "0.0.0.0"]

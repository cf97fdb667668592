# The gateway as an image: docker build --file deploy/gateway.Dockerfile --tag aenv-gateway .
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir '/src[redis,s3]' && rm -r /src
EXPOSE 8080 8081
CMD ["aenv", "serve", "--host", "0.0.0.0"]

# docker build -t websearch-mcp . && docker run --rm -i --env-file websearch.env websearch-mcp
FROM python:3.13-slim
COPY websearch.py websearch_mcp.py /opt/websearch/
# Byte code beside the files: without it each container would compile them anew, most of a second.
RUN python3 -m compileall -q /opt/websearch
USER 65534:65534
ENTRYPOINT ["python3", "/opt/websearch/websearch_mcp.py"]

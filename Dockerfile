# docker build -t websearch-mcp . && docker run --rm -i --env-file websearch.env websearch-mcp
FROM python:3.13-slim
COPY websearch.py websearch_mcp.py /opt/websearch/
# Byte code beside the files: without it each container would compile them anew, most of a second. It goes by the
# files' content, so that a builder that sets all times anew does not void it.
RUN python3 -m compileall -q --invalidation-mode checked-hash /opt/websearch
USER 65534:65534
ENTRYPOINT ["python3", "/opt/websearch/websearch_mcp.py"]

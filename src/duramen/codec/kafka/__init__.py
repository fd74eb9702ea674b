"""Kafka's wire protocol: headers, versions, messages and error numbers. https://kafka.apache.org/protocol"""

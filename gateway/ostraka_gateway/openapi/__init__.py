"""The OpenAPI document: what each path takes and gives, held to the server by tests."""

// Package localapi serves the local API: HTTP with JSON on a unix socket, for kith, kith-tray and curl.
//
// The daemon makes one Server and runs it. The Server decides who may call (root and the group kith, by the
// kernel's word on who is at the other end), turns each method and path into one call of Backend, and streams
// progress and events. It must never decide anything about peers or policies: that is behind Backend. Types and
// paths are core/api's, the typed client is core/api/client.
package localapi

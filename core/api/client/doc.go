// Package client is the typed client of the local API, for cli and tray: neither sees HTTP.
//
// A Client holds no state but idle connections; calls end with their context. Every error is an *api.Error, also
// when no daemon answers (CodeUnavailable) and when the socket may not be opened (CodeForbidden); they say what to
// do about it. It must not retry on its own: only its caller knows whether a second request is meant.
package client

// Package door is a reverse proxy from the peer API (/kube/…) to this cluster's API server. It impersonates one user per consumer, and
// refuses bodies that would cost the API server too much. What else consumers may write is up to admission policies (core/provide/hosting/tenants,
// from the table in core/agree/kinds). The daemon builds a Door and gives it to the peer API's server; handlers of hosting answer with Answer.
//
// It must never let a consumer act as anybody but itself, nor pass on a body that it has not checked.
package door

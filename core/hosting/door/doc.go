// Package door lets consumers through to this cluster's API server (/kube/…), each as itself, and refuses bodies by what they cost;
// what else consumers may write there, admission policies say (core/hosting/tenants, by the table of kinds). The daemon builds a Door
// and hands it to the peer API's server; the rooms of hosting that answer consumers do it with Answer.
//
// It must never let a consumer act as anybody but itself, nor have the API server decode what was not looked at.
package door

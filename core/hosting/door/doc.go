// Package door lets consumers through to this cluster's API server (/kube/…), each as itself, and says what they may write there: at
// the door by the cost of a body, in the API server by admission policies. The daemon builds a Door and hands it to the peer API's
// server; the rooms of hosting that answer consumers do it with Answer.
//
// It must never let a consumer act as anybody but itself, nor have the API server decode what was not looked at.
package door

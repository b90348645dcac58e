// Package names answers guests' questions to DNS with the names and addresses of their homes, where the cluster's DNS is somebody else's and knows
// twins by their names here. It is a server between guests and that DNS: it changes names in the question and names and addresses in the answer, asks
// the cluster's DNS everything, and stores nothing. Names outside the cluster pass as they are, byte by byte.
//
// core/provide/translate says who is whose guest, leads their questions here while this server is alive, and makes the addresses that it answers lead
// somewhere. While it is not, guests ask the cluster's DNS itself, and find what they name by the search list of their twin.
//
// Questions are hostile: what is longer than a question is (most), is not one, or comes from nobody's guest is dropped, and each guest may ask only
// so much (limits.go).
package names

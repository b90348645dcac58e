// Package translate lets guests whose addresses a network plugin gives use the addresses and names of their home. It reads guests, twins of services,
// peers and nodes, writes one nftables table on the node it runs on, and nothing in the cluster. Where the engine gives guests addresses of their
// home's, core/provide/guestnet does this, and more.
//
// Whose a guest is, core/provide/fence says; what of a service's address at home is believed, guestnet does; core/provide/names answers the questions to
// DNS. Which names a range has here was agreed on by core/agree/relations/link.
//
// # The way of a packet
//
//	there  before connections are tracked: a guest's packet for a service at home gets the ClusterIP of its twin, by the guest's own address. It is
//	       marked until
//	asked  the connection is known, which keeps the mark
//	begun  a connection to a pod at home, or to a guest by its address there, is led to the name of that here; and questions to the cluster's DNS to the
//	       server of names, while that is alive
//	itself who asks for itself is hidden behind the node, as kube-proxy does it
//	back   behind all that changes addresses, what answers for a service has the address again that the guest asked for, in the quotes of ICMP errors,
//	       too; of ranges, connection tracking does it
//
// So kube-proxy, in whatever mode, and the fence see what they would see if the guest had asked for the ClusterIP, or for the name here: a guest
// reaches by home's addresses what it reaches without, and no more. Connections to the names here are not marked, and answered by them. Of
// connections' marks one bit is used (noderoute.MarkMask), by which the fence knows, too, that it was this room that led a guest elsewhere; that of the
// packet is gone before routes are looked up.
//
// # What is left as it is
//
// Services are led without a state, before kube-proxy, so that a guest's answer to who asked it cannot be told from what it asks. So a service's
// address is not led that pods or nodes here may have, or the cluster's DNS has, or that lies in a name here of a range of the home's. Of ranges the
// first packet decides, so that pods here may have the same: but a home's guest here is meant by its address here, and a range that is in this
// cluster's range of services, or in a name here of another of the home's, is not led. A range of services that both clusters have is no such case:
// a number means home's, and no guest learns one of this cluster's while its names are answered.
package translate

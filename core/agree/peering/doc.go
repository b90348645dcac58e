// Package peering is the protocol between two daemons: the messages, the server and the client that exchange
// them over mutual TLS, the contacts that know which peers are there now, and the table of the states a
// relation goes through.
//
// The peer's key, proven by the TLS handshake, is who it is (core/trust/identity); what it says about itself is a
// hint. Everything read from the network is bounded in size and time before anything looks at it. What the
// messages mean is the Handler's affair (core/agree/relations/provider), which keeps the objects in the cluster.
//
// Called by relations (Handler, Client, Contacts, the table), hosting (Server.Handle), virtualnode and reflection
// (Client.Transport) and the daemon (wiring). It must never import Kubernetes code, decide who gets what, or
// keep anything on disk.
//
// # The routes
//
// All JSON, at most 64 KiB (contracts: 128 KiB), errors as Problem. The caller is known by its key.
//
//	GET    /kith/v1/hello                  → Hello                   in every version
//	GET    /kith/v2/presence               → lines of JSON without end: first {"hello": Hello}, then {"notice": Notice}, {"beat": Beat}
//	GET    /kith/v2/supply                 → Supply                  what the caller would get if it asked
//	POST   /kith/v2/requests               Opening → Opened          the responder's commitment
//	POST   /kith/v2/requests/{id}/question Asking → Revealed         {id} from Opened; Revealed has the request's own ID
//	GET    /kith/v2/requests/{id}          → Outcome                 {id} from Revealed; held until answered, at most about 50 s
//	DELETE /kith/v2/requests/{id}                                    withdraw; idempotent; ?mismatch=true: because the codes, or keys, differed
//	POST   /kith/v2/contracts              contract.Signed → contract.Signed, countersigned
//	GET    /kith/v2/contracts              → []ContractRef           in force between the two
//	DELETE /kith/v2/contracts/{id}                                   idempotent
//	PUT    /kith/v2/link                   Link → Link
//	GET    /kith/v2/tether                 → Tether                  how a request of the caller to be tethered would be answered
//	PUT    /kith/v2/tether                 → Tether                  begin the tether of the caller, whose request was accepted
//	DELETE /kith/v2/tether                                           end the tether of the caller; idempotent
//
// identity.Commit explains the order of the messages of a request; Limits bounds how often strangers may send one. Further routes are added with
// Server.Handle. Calls in another version of the protocol are answered with CodeVersion; a client of kith/v1, which opens /kith/v1/presence,
// gets a Hello there and nothing else.
package peering

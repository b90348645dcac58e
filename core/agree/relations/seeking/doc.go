// Package seeking asks peers for resources by itself, as PeeringPolicies say: whom, in what order, and when again after a no. A question is put as
// `kith peer` puts it (consumer.Want); what becomes of it is for core/agree/relations.
//
// The daemon registers one Seeker. Its memory is the ledger and the status of the policies, so that a restart asks nothing twice. It must never ask
// somebody who is neither accepted here nor named by his whole ID, and never end a contract.
package seeking

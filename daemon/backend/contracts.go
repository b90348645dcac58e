package backend

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/verdict"
	"kith.dev/core/trust/contract"
)

// Contracts gives those in force or ending.
func (b *Backend) Contracts(ctx context.Context) ([]api.Contract, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	f, err := b.gather(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Contract
	for _, ctr := range f.agreed.Contracts {
		list = append(list, c.contract(ctr, f))
	}
	return list, nil
}

// Contract gives one, by its name, its ID or the peer's name.
func (b *Backend) Contract(ctx context.Context, ref string) (api.Contract, error) {
	all, err := b.Contracts(ctx)
	if err != nil {
		return api.Contract{}, err
	}
	var found []api.Contract
	for _, ctr := range all {
		if ctr.Name == ref || ctr.ID == ref {
			return ctr, nil
		}
		if ctr.Peer == ref || strings.HasPrefix(ctr.ID, ref) || strings.HasPrefix(ctr.Name, ref) {
			found = append(found, ctr)
		}
	}
	switch len(found) {
	case 0:
		return api.Contract{}, api.NotFound("contract", ref, "kith contract list")
	case 1:
		return found[0], nil
	}
	return api.Contract{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q means %d contracts", ref, len(found)), Do: "give the whole name"}
}

func (c *Cluster) contract(ctr *v1alpha1.Contract, f facts) api.Contract {
	v := api.Contract{
		Name: ctr.Name, ID: ctr.Spec.ID, Revision: ctr.Spec.Revision, Role: api.Role(strings.ToLower(string(ctr.Spec.Role))),
		Peer: ctr.Spec.Peer, Resources: quantities(ctr.Spec.Resources), State: api.State(ctr.Status.State), Why: ctr.Status.Why,
		Document: ctr.Spec.Document,
	}
	if v.State == "" {
		v.State = api.StateContracted
	}
	if ctr.DeletionTimestamp != nil {
		v.State = api.StateEnding
	}
	var used corev1.ResourceList
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		used = c.Host.Used(ctr.Spec.ID)
	} else {
		used = f.used[v1alpha1.VirtualNodePrefix+ctr.Spec.Peer]
	}
	v.Used = quantities(used)
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		v.Why = err.Error()
		return v
	}
	v.Created, v.NotBefore, v.NotAfter = doc.Created, doc.NotBefore, doc.NotAfter
	v.PeerID = doc.Provider.ID.String()
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		v.PeerID = doc.Consumer.ID.String()
	}
	// As the document spells them: that is what verifying compares.
	v.Resources = doc.Resources
	v.Signatures = verdict.Signatures(contract.Signed{
		Document: ctr.Spec.Document, ConsumerSignature: ctr.Spec.ConsumerSignature, ProviderSignature: ctr.Spec.ProviderSignature,
	})
	return v
}

// VerifyContract checks document and signatures.
func (b *Backend) VerifyContract(_ context.Context, ctr api.Contract) (api.VerifyResult, error) {
	return verdict.Of(ctr), nil
}

package daemon

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
)

// Contracts gives those in force or ending.
func (b backend) Contracts(ctx context.Context) ([]api.Contract, error) {
	c, err := b.cluster()
	if err != nil {
		return nil, err
	}
	var contracts v1alpha1.ContractList
	if err := c.client.List(ctx, &contracts); err != nil {
		return nil, internal(err)
	}
	f, err := b.gather(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Contract
	for i := range contracts.Items {
		list = append(list, c.contract(&contracts.Items[i], f))
	}
	return list, nil
}

// Contract gives one, by its name, its ID or the peer's name.
func (b backend) Contract(ctx context.Context, ref string) (api.Contract, error) {
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

func (c *clusterPart) contract(ctr *v1alpha1.Contract, f facts) api.Contract {
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
		used = c.host.Used(ctr.Spec.ID)
	} else {
		used = f.used[v1alpha1.VirtualNodePrefix+ctr.Spec.Peer]
	}
	v.Used = quantities(used)
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		v.Why = err.Error()
		return v
	}
	v.NotBefore, v.NotAfter = doc.NotBefore, doc.NotAfter
	v.PeerID = doc.Provider.ID.String()
	if ctr.Spec.Role == v1alpha1.RoleProvider {
		v.PeerID = doc.Consumer.ID.String()
	}
	v.Signatures = []api.Signature{
		{Role: api.Consumer, ID: doc.Consumer.ID.String(), PublicKey: doc.Consumer.Key, Signature: ctr.Spec.ConsumerSignature},
		{Role: api.Provider, ID: doc.Provider.ID.String(), PublicKey: doc.Provider.Key, Signature: ctr.Spec.ProviderSignature},
	}
	return v
}

// VerifyContract checks document and signatures.
func (b backend) VerifyContract(_ context.Context, ctr api.Contract) (api.VerifyResult, error) {
	signed := contract.Signed{Document: ctr.Document}
	for _, s := range ctr.Signatures {
		switch s.Role {
		case api.Consumer:
			signed.ConsumerSignature = s.Signature
		case api.Provider:
			signed.ProviderSignature = s.Signature
		}
	}
	doc, err := contract.Parse(signed.Document)
	result := api.VerifyResult{Valid: err == nil, Checks: []api.Check{check("document", err)}}
	if err != nil {
		return result, nil
	}
	result.ID, result.Revision = doc.ID, doc.Revision
	result.Consumer, result.Provider = doc.Consumer.ID.String(), doc.Provider.ID.String()
	for _, role := range []contract.Role{contract.Consumer, contract.Provider} {
		_, err := signed.VerifyAs(role)
		result.Checks = append(result.Checks, check("signature of the "+string(role), err))
		result.Valid = result.Valid && err == nil
	}
	return result, nil
}

func check(what string, err error) api.Check {
	if err != nil {
		return api.Check{What: what, Why: err.Error()}
	}
	return api.Check{What: what, OK: true}
}

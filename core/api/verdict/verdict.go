// Package verdict says whether a contract of the local API is what both sides signed: core/trust/contract's proof, told
// check by check for people. Bytes in, verdict out: kith calls it without a daemon, the daemon for the local API.
// It must never look at the clock; whether a contract is in force is another question.
package verdict

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// MaxFile bounds a file with a contract, in bytes.
const MaxFile = 1 << 20

// Of checks the document, both signatures, and that what stands beside the document in c agrees with it. Empty
// fields beside it are not held against it.
func Of(c api.Contract) api.VerifyResult {
	r := api.VerifyResult{ID: c.ID, Revision: c.Revision}
	check := func(what string, err error) {
		one := api.Check{What: what, OK: err == nil}
		if err != nil {
			one.Why = err.Error()
		}
		r.Checks = append(r.Checks, one)
	}
	d, err := contract.Parse(c.Document)
	check("the document is a contract, in canonical form", err)
	if err == nil {
		r.ID, r.Revision = d.ID, d.Revision
		r.Consumer, r.Provider = d.Consumer.ID.String(), d.Provider.ID.String()
	}
	s, beside := signed(c)
	_, err = s.VerifyAs(contract.Consumer)
	check("the consumer signed it", err)
	_, err = s.VerifyAs(contract.Provider)
	check("the provider signed it", err)
	if r.Checks[0].OK {
		check("what is said beside the document agrees with it", errors.Join(beside, agrees(c, d)))
	}
	r.Valid = true
	for _, one := range r.Checks {
		r.Valid = r.Valid && one.OK
	}
	return r
}

// Signatures gives the list of the local API for a signed document; missing signatures are left out.
func Signatures(s contract.Signed) (out api.List[api.Signature]) {
	d, err := contract.Parse(s.Document)
	if err != nil {
		return nil
	}
	for _, one := range []struct {
		role      contract.Role
		party     contract.Party
		signature []byte
	}{{contract.Consumer, d.Consumer, s.ConsumerSignature}, {contract.Provider, d.Provider, s.ProviderSignature}} {
		if len(one.signature) > 0 {
			out = append(out, api.Signature{
				Role: api.Role(one.role), ID: one.party.ID.String(), PublicKey: one.party.Key, Signature: one.signature,
			})
		}
	}
	return out
}

func signed(c api.Contract) (contract.Signed, error) {
	s := contract.Signed{Document: c.Document}
	for _, one := range c.Signatures {
		at := map[api.Role]*[]byte{api.Consumer: &s.ConsumerSignature, api.Provider: &s.ProviderSignature}[one.Role]
		if at == nil {
			return s, fmt.Errorf("a signature is of %q, who is no side of a contract", one.Role)
		}
		if *at != nil {
			return s, fmt.Errorf("there are two signatures of the %s", one.Role)
		}
		*at = one.Signature
	}
	return s, nil
}

// agrees compares what stands beside the document with it.
func agrees(c api.Contract, d contract.Document) error {
	var all []error
	differs := func(what string, beside, inside any) {
		all = append(all, fmt.Errorf("%s is %v beside the document, %v in it", what, beside, inside))
	}
	if c.ID != "" && c.ID != d.ID {
		differs("id", c.ID, d.ID)
	}
	if c.Revision != 0 && c.Revision != d.Revision {
		differs("revision", c.Revision, d.Revision)
	}
	for name, amount := range c.Resources {
		if d.Resources[name] != amount {
			differs(name, amount, d.Resources[name])
		}
	}
	if !c.NotAfter.IsZero() && !c.NotAfter.Equal(d.NotAfter) {
		differs("notAfter", c.NotAfter, d.NotAfter)
	}
	other := map[api.Role]contract.Party{api.Consumer: d.Provider, api.Provider: d.Consumer}[c.Role]
	if id, err := identity.ParseID(c.PeerID); c.PeerID != "" && !other.ID.IsZero() && (err != nil || id != other.ID) {
		differs("peerId", c.PeerID, other.ID)
	}
	for _, s := range c.Signatures {
		party := map[api.Role]contract.Party{api.Consumer: d.Consumer, api.Provider: d.Provider}[s.Role]
		if id, err := identity.ParseID(s.ID); s.ID != "" && (err != nil || id != party.ID) {
			differs("the "+string(s.Role)+"'s id", s.ID, party.ID)
		}
		if len(s.PublicKey) > 0 && string(s.PublicKey) != string(party.Key) {
			differs("the "+string(s.Role)+"'s key", base64.StdEncoding.EncodeToString(s.PublicKey), base64.StdEncoding.EncodeToString(party.Key))
		}
	}
	return errors.Join(all...)
}

// Read reads a contract from a file: what `kith contract show -o json` or -o yaml printed, or a Contract resource as
// `kubectl get contract -o yaml` prints it. The error is an *api.Error, name the file's in it.
func Read(name string, b []byte) (api.Contract, error) {
	var in struct {
		api.Contract
		Kind string          `json:"kind"`
		Spec contract.Signed `json:"spec"`
	}
	if why := decode(b, &in); why != "" {
		return api.Contract{}, no(name, why)
	}
	if in.Kind == "Contract" {
		in.Contract = api.Contract{Document: in.Spec.Document, Signatures: Signatures(in.Spec)}
	}
	if len(in.Document) == 0 {
		return api.Contract{}, no(name, "it has no signed document")
	}
	return in.Contract, nil
}

func no(name, why string) error {
	return &api.Error{
		Code: api.CodeInvalid, Message: name + " is not a Kith contract", Reason: why,
		Do: "`kith contract show NAME -o json` prints one that can be verified",
	}
}

// decode says what is wrong with the file; empty when nothing is.
func decode(b []byte, into any) (why string) {
	if len(b) > MaxFile {
		return fmt.Sprintf("it is larger than the %d bytes that a contract can have", MaxFile)
	}
	text, err := yaml.YAMLToJSON(b)
	if err != nil {
		return "it is neither JSON nor YAML"
	}
	var form *json.UnmarshalTypeError
	switch err := json.Unmarshal(text, into); {
	case err == nil:
		return ""
	case errors.As(err, &form) && form.Field != "":
		return fmt.Sprintf("%.64q has another form than in a contract", strings.TrimPrefix(form.Field, "Contract."))
	case errors.As(err, &form):
		return "it has no fields"
	case errors.As(err, new(base64.CorruptInputError)):
		return "its document, or a key or signature, is not base64"
	}
	return "a field of it has another form than in a contract"
}

package verdict

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func sample(t *testing.T) (api.Contract, contract.Signed) {
	t.Helper()
	alice, err := identity.Load(t.TempDir() + "/alice")
	if err != nil {
		t.Fatal(err)
	}
	bob, err := identity.Load(t.TempDir() + "/bob")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := contract.Document{
		Version: contract.Version, ID: "a1b2c3d4e5f6g7h8", Revision: 2,
		Consumer:  contract.Party{ID: alice.ID(), Name: "alice", Key: alice.Public()},
		Provider:  contract.Party{ID: bob.ID(), Name: "<bob> & co", Key: bob.Public()},
		Terms:     contract.Terms{Resources: map[string]string{"cpu": "2"}, PodSecurity: contract.Baseline},
		NotBefore: begin, NotAfter: begin.Add(time.Hour), Created: begin,
	}
	s, err := contract.New(d)
	if err := errors.Join(err, s.SignAs(contract.Consumer, alice), s.SignAs(contract.Provider, bob)); err != nil {
		t.Fatal(err)
	}
	return api.Contract{
		Name: "bob-out", ID: d.ID, Revision: 2, Role: api.Consumer, Peer: "bob", PeerID: bob.ID().String(),
		Resources: api.Resources{"cpu": "2"}, NotBefore: d.NotBefore, NotAfter: d.NotAfter,
		Document: s.Document, Signatures: Signatures(s),
	}, s
}

func TestGenuineContractSurvivesEveryForm(t *testing.T) {
	c, s := sample(t)
	forms := map[string]func() ([]byte, error){
		"json": func() ([]byte, error) { return json.MarshalIndent(c, "", "  ") },
		"yaml": func() ([]byte, error) { return yaml.Marshal(c) },
		"resource": func() ([]byte, error) {
			return yaml.Marshal(map[string]any{"apiVersion": "kith.dev/v1alpha1", "kind": "Contract", "metadata": map[string]any{"name": "bob-out"}, "spec": s})
		},
	}
	for name, form := range forms {
		b, err := form()
		if err != nil {
			t.Fatal(err)
		}
		read, err := Read("x.json", b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := Of(read); !r.Valid || r.ID != c.ID || r.Revision != 2 || r.Provider != c.PeerID || len(r.Checks) != 4 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestEveryForgeryIsNamed(t *testing.T) {
	for says, forge := range map[string]func(c *api.Contract){
		"canonical form":               func(c *api.Contract) { c.Document = append(c.Document, '\n') },
		"the consumer signed it":       func(c *api.Contract) { c.Signatures[0].Signature[3] ^= 1 },
		"the provider signed it":       func(c *api.Contract) { c.Signatures = c.Signatures[:1] },
		"cpu is 4 beside the document": func(c *api.Contract) { c.Resources["cpu"] = "4" },
		"memory is 1Gi beside":         func(c *api.Contract) { c.Resources["memory"] = "1Gi" },
		"revision is 3 beside":         func(c *api.Contract) { c.Revision = 3 },
		"notAfter":                     func(c *api.Contract) { c.NotAfter = c.NotAfter.Add(time.Hour) },
		"peerId":                       func(c *api.Contract) { c.Role = api.Provider },
		"the consumer's key":           func(c *api.Contract) { c.Signatures[0].PublicKey = c.Signatures[1].PublicKey },
		"the provider's id":            func(c *api.Contract) { c.Signatures[1].ID = c.Signatures[0].ID },
		"two signatures":               func(c *api.Contract) { c.Signatures = append(c.Signatures, c.Signatures[0]) },
		"no side of a contract":        func(c *api.Contract) { c.Signatures[0].Role = "witness" },
	} {
		c, _ := sample(t)
		forge(&c)
		r := Of(c)
		var failed []string
		for _, check := range r.Checks {
			if !check.OK {
				failed = append(failed, check.What+": "+check.Why)
			}
		}
		if text := strings.Join(failed, "\n"); r.Valid || !strings.Contains(text, says) {
			t.Errorf("valid %v, want a failed check that says %q:\n%s", r.Valid, says, text)
		}
	}
}

func TestWhatIsNoContractIsRefused(t *testing.T) {
	c, _ := sample(t)
	whole, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for b, why := range map[string]string{
		"": "it has no signed document", "{}": "it has no signed document", "kind: Contract\n": "it has no signed document",
		"kind: Pod\nmetadata: {name: web}\n": "it has no signed document",
		"hello":                              "it has no fields", "[]": "it has no fields", "7": "it has no fields",
		"\x7fELF\x02\x01\x01\x00": "it is neither JSON nor YAML", "{": "it is neither JSON nor YAML", "a: b: c": "it is neither JSON nor YAML",
		string(whole[:len(whole)/2]):   "it is neither JSON nor YAML",
		`{"document":"?"}`:             "its document, or a key or signature, is not base64",
		`{"document":7}`:               `"document" has another form than in a contract`,
		`{"notAfter":"tomorrow"}`:      "a field of it has another form than in a contract",
		strings.Repeat(" ", MaxFile+1): "it is larger than the 1048576 bytes that a contract can have",
	} {
		_, err := Read("x.json", []byte(b))
		var no *api.Error
		if !errors.As(err, &no) || no.Code != api.CodeInvalid || no.Message != "x.json is not a Kith contract" || no.Reason != why {
			t.Errorf("%.40q: %v, want %q", b, err, why)
		}
	}
}

// gosWords are those of packages, which tell a reader nothing.
var gosWords = []string{"json:", "invalid character", "EOF", "base64 data", "parsing time", "Time.", "unmarshal", "looking for"}

func TestChecksAreToldWithoutGosWords(t *testing.T) {
	for _, document := range []string{"", "hello", "{", "[]", "7", `{"id":7}`, `{"shoe":1}`, `{"created":"x"}`, `{"created":7}`, `{"consumer":{"key":"?"}}`, `{"consumer":{"id":"x"}}`, "{}"} {
		for _, check := range Of(api.Contract{Document: []byte(document)}).Checks {
			for _, word := range gosWords {
				if strings.Contains(check.Why, word) {
					t.Errorf("%q: %s: %s", document, check.What, check.Why)
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"document":"e30=","signatures":[{"role":"consumer","signature":"AA=="}]}`))
	f.Add([]byte("kind: Contract\nspec: {document: e30=}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Read("x.json", b); err == nil && Of(c).Valid {
			t.Errorf("valid: %q", b)
		}
	})
}

package contract

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

func someone(t testing.TB) *identity.Identity {
	t.Helper()
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// fixed has the same key in every process, as the workers of a fuzz test need.
func fixed(t testing.TB, seed byte) *identity.Identity {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, "identity.key"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func between(consumer, provider *identity.Identity) Document {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return Document{
		Version:  Version,
		ID:       "a1b2c3d4e5f6g7h8",
		Revision: 1,
		Consumer: Party{ID: consumer.ID(), Name: "alice", Key: consumer.Public()},
		Provider: Party{ID: provider.ID(), Name: "Bob's <laptop> & ünïcode €", Key: provider.Public()},
		Terms: Terms{
			Resources:      map[string]string{"cpu": "1500m", "memory": "4Gi", "pods": "20", "nvidia.com/gpu": "1"},
			PodSecurity:    Baseline,
			Prices:         map[string]string{"cpu": "0.02 EUR"},
			StorageClasses: []string{"local-path", "fast.example.com"},
		},
		NotBefore: begin, NotAfter: begin.Add(720 * time.Hour), Created: begin,
	}
}

func signed(t testing.TB, consumer, provider *identity.Identity) Signed {
	t.Helper()
	s, err := New(between(consumer, provider))
	if err == nil {
		err = errors.Join(s.SignAs(Consumer, consumer), s.SignAs(Provider, provider))
	}
	if err == nil {
		err = s.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBothSidesKeepTheSameBytes(t *testing.T) {
	d := between(someone(t), someone(t))
	first, err := Canonical(d)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Canonical(read)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%v\n%s\n%s", err, first, second)
	}
	// The form of RFC 8785: no spaces, sorted members, nothing escaped that need not be.
	if !bytes.HasPrefix(first, []byte(`{"consumer":{"id":"`)) || !bytes.Contains(first, []byte(`"Bob's <laptop> & ünïcode €"`)) {
		t.Errorf("%s", first)
	}
	d.NotBefore = d.NotBefore.Add(time.Millisecond).In(time.FixedZone("elsewhere", 3600))
	if third, err := Canonical(d); err != nil || !bytes.Equal(first, third) {
		t.Errorf("the same second in another zone is written otherwise: %v\n%s", err, third)
	}
}

// A price of traffic is for readers who know that it is not one of hours; without it all is written as ever.
func TestAPriceOfTrafficIsForThoseWhoKnowIt(t *testing.T) {
	d := between(someone(t), someone(t))
	d.Prices = map[string]string{"cpu": "0.02 EUR"}
	if d.DocumentVersion() != Version || d.Validate() != nil {
		t.Error("other prices make another version")
	}
	d.Prices[Traffic] = "0.01 EUR"
	if d.DocumentVersion() != Version2 || d.Validate() == nil {
		t.Error("it is taken for the first version")
	}
	d.Version = Version2
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if says := PerHour(Traffic, "0.01 EUR"); says != "0.01 EUR for each GB" {
		t.Error(says)
	}
}

// A document of before there was a term for it says seven days, in the same bytes as then; any other time is one of its terms.
func TestHowLongVolumesAreKeptIsATerm(t *testing.T) {
	for keep, want := range map[time.Duration]string{
		DefaultKeep: "", time.Hour: `"keepVolumes":3600,`, 30 * 24 * time.Hour: `"keepVolumes":2592000,`, time.Minute: `"keepVolumes":3600,`, 9000 * time.Hour: `"keepVolumes":31536000,`,
	} {
		d := between(someone(t), someone(t))
		d.KeepVolumes = KeepFor(keep)
		d.Version = map[bool]string{true: Version2, false: Version}[want != ""] // who does not know the term does not know the version
		doc, err := Canonical(d)
		if err != nil || bytes.Contains(doc, []byte("keepVolumes")) != (want != "") || !bytes.Contains(doc, []byte(want)) {
			t.Fatalf("%s: %v\n%s", keep, err, doc)
		}
		if read, err := Parse(doc); err != nil || read.Keeps() != min(max(keep, MinKeep), MaxKeep) {
			t.Errorf("%s: read as %s, %v", keep, read.Keeps(), err)
		}
		if d.Version = map[bool]string{true: Version, false: Version2}[want != ""]; d.Validate() == nil {
			t.Errorf("%s: it is taken for %s", keep, d.Version)
		}
	}
	// A signature is good for a document of its version.
	consumer, provider := someone(t), someone(t)
	d := between(consumer, provider)
	d.Version, d.KeepVolumes = Version2, 3600
	s, err := New(d)
	if err = errors.Join(err, s.SignAs(Consumer, consumer), s.SignAs(Provider, provider)); err != nil || s.Verify() != nil {
		t.Fatal(err, s.Verify())
	}
	s.ConsumerSignature = consumer.Sign(append([]byte(Version+"\x00"), s.Document...))
	if _, err := s.VerifyAs(Consumer); err == nil {
		t.Error("signed as of another version, it is good")
	}
}

// A document that says nothing of waking has the bytes of before there was the term; one that does is not taken for one of the first version.
func TestWakeIsATerm(t *testing.T) {
	for times, want := range map[int32]string{-1: "", 0: "", 1: `"wake":1}`, 24: `"wake":24}`, 99: `"wake":24}`} {
		d := between(someone(t), someone(t))
		d.Wake = WakeOf(times)
		d.Version = d.Terms.DocumentVersion()
		doc, err := Canonical(d)
		if err != nil || bytes.Contains(doc, []byte(`"wake"`)) != (want != "") || !bytes.Contains(doc, []byte(want)) {
			t.Fatalf("%d: %v\n%s", times, err, doc)
		}
		if read, err := Parse(doc); err != nil || read.Wake != d.Wake {
			t.Errorf("%d: read as %d, %v", times, read.Wake, err)
		}
	}
}

// A document that says nothing of a notice has the bytes of before there was the term; one that does is not taken for one of the first version.
func TestNoticeIsATerm(t *testing.T) {
	for notice, want := range map[time.Duration]string{
		0: "", time.Second: `"notice":10,`, MinNotice: `"notice":10,`, 24 * time.Hour: `"notice":86400,`, 900 * time.Hour: `"notice":2592000,`,
	} {
		d := between(someone(t), someone(t))
		d.Notice = NoticeOf(notice)
		d.Version = map[bool]string{true: Version2, false: Version}[want != ""]
		doc, err := Canonical(d)
		if err != nil || bytes.Contains(doc, []byte("notice")) != (want != "") || !bytes.Contains(doc, []byte(want)) {
			t.Fatalf("%s: %v\n%s", notice, err, doc)
		}
		if read, err := Parse(doc); err != nil || read.NoticeTime() != d.NoticeTime() {
			t.Errorf("%s: read as %s, %v", notice, read.NoticeTime(), err)
		}
		if d.Version = map[bool]string{true: Version, false: Version2}[want != ""]; d.Validate() == nil {
			t.Errorf("%s: it is taken for %s", notice, d.Version)
		}
	}
}

// Storage of a class is a resource as any other: documents of it are of the first version, and older readers take them.
func TestStorageOfAClassIsAResource(t *testing.T) {
	doc := between(someone(t), someone(t))
	const fast = "fast.storageclass.storage.k8s.io/requests.storage"
	doc.Resources[fast], doc.Prices[fast] = "2Gi", "0.1 EUR"
	if err := doc.Validate(); err != nil || doc.Terms.DocumentVersion() != Version {
		t.Errorf("%s: %v", doc.Terms.DocumentVersion(), err)
	}
	if is := PerHour(fast, doc.Prices[fast]); is != "0.1 EUR an hour for each GiB" {
		t.Error(is)
	}
}

// TestWhetherItMayBeOfferedOnIsATerm: a document that says nothing of it has the bytes that it had before there was the term; one that does is for readers
// who know it.
func TestWhetherItMayBeOfferedOnIsATerm(t *testing.T) {
	for _, reoffer := range []bool{false, true} {
		d := between(someone(t), someone(t))
		d.Reoffer, d.Version = reoffer, map[bool]string{true: Version2, false: Version}[reoffer]
		doc, err := Canonical(d)
		if err != nil || bytes.Contains(doc, []byte(`"reoffer":true,"resources"`)) != reoffer || bytes.Contains(doc, []byte("reoffer")) != reoffer {
			t.Fatalf("%t: %v\n%s", reoffer, err, doc)
		}
		if read, err := Parse(doc); err != nil || read.Reoffer != reoffer {
			t.Errorf("%t: read as %t, %v", reoffer, read.Reoffer, err)
		}
		if d.Version = map[bool]string{true: Version, false: Version2}[reoffer]; d.Validate() == nil {
			t.Errorf("%t: it is taken for %s", reoffer, d.Version)
		}
	}
}

// TestAContractWithoutANetworkSaysSo: one with a network has the bytes that it had before there was such a term.
func TestAContractWithoutANetworkSaysSo(t *testing.T) {
	for network, version := range map[string]string{"": Version, NetworkNone: Version2} {
		d := between(someone(t), someone(t))
		d.Network, d.Version = network, version
		doc, err := Canonical(d)
		if err != nil || bytes.Contains(doc, []byte(`"network":"none"`)) != (network != "") || bytes.Contains(doc, []byte("network")) != (network != "") {
			t.Fatalf("%q: %v\n%s", network, err, doc)
		}
		if read, err := Parse(doc); err != nil || read.Network != network {
			t.Errorf("%q: read as %q, %v", network, read.Network, err)
		}
		if d.Version = map[string]string{Version: Version2, Version2: Version}[version]; d.Validate() == nil {
			t.Errorf("%q: it is taken for %s", network, d.Version)
		}
	}
	for what, wrong := range map[string]Terms{"another word": {Network: "slow"}, "on without a way": {Network: NetworkNone, Reoffer: true}} {
		if wrong.PodSecurity = Baseline; wrong.Validate() == nil {
			t.Errorf("%s passes", what)
		}
	}
}

func TestParseTakesNothingButTheCanonicalBytes(t *testing.T) {
	doc, err := Canonical(between(someone(t), someone(t)))
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for name, other := range map[string]string{
		"a space":           strings.Replace(text, `:`, `: `, 1),
		"trailing newline":  text + "\n",
		"a second document": text + text,
		"unknown field":     strings.Replace(text, `{`, `{"aaa":1,`, 1),
		"other case":        strings.Replace(text, `"notAfter"`, `"NotAfter"`, 1),
		"repeated field":    strings.Replace(text, `"revision":1`, `"revision":1,"revision":1`, 1),
		"other order":       strings.Replace(strings.Replace(text, `"revision":1,`, ``, 1), `}`, `,"revision":1}`, 1),
		"another number":    strings.Replace(text, `"revision":1`, `"revision":1.0`, 1),
		"needless escape":   strings.Replace(text, `alice`, `\u0061lice`, 1),
		"another zone":      strings.ReplaceAll(text, `00Z"`, `00+00:00"`),
		"null":              strings.Replace(text, `"storageClasses":["local-path","fast.example.com"]`, `"storageClasses":null`, 1),
		"empty list":        strings.Replace(text, `["local-path","fast.example.com"]`, `[]`, 1),
		"nothing":           "",
		"no object":         "[]",
		"too long":          text + strings.Repeat(" ", MaxDocument),
		"deep":              strings.Repeat("[", 20000),
	} {
		if other == text {
			t.Fatalf("%s: changes nothing", name)
		}
		if _, err := Parse([]byte(other)); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	consumer, provider, other := someone(t), someone(t), someone(t)
	for says, change := range map[string]func(*Document){
		"version":                   func(d *Document) { d.Version = "kith.dev/contract/v3" },
		"contract ID":               func(d *Document) { d.ID = "A1b2c3d4e5f6g7h8" },
		"revision 0":                func(d *Document) { d.Revision = 0 },
		"revision 9":                func(d *Document) { d.Revision = math.MaxInt64 },
		"another key":               func(d *Document) { d.Provider.ID = other.ID() },
		"key has 3 bytes":           func(d *Document) { d.Consumer.Key = []byte("abc") },
		"same cluster":              func(d *Document) { d.Consumer = d.Provider },
		"has 0 bytes":               func(d *Document) { d.Consumer.Name = "" },
		"cannot be shown":           func(d *Document) { d.Consumer.Name = "al\u202eice" },
		"ends before":               func(d *Document) { d.NotAfter = d.NotBefore },
		"the year 1":                func(d *Document) { d.Created = time.Time{} },
		"podSecurity":               func(d *Document) { d.PodSecurity = "" },
		"resources: cpu: \"-1\"":    func(d *Document) { d.Resources = map[string]string{"cpu": "-1"} },
		"resources: cpu: \"1 \"":    func(d *Document) { d.Resources = map[string]string{"cpu": "1 "} },
		"resources: cpu: \"\"":      func(d *Document) { d.Resources = map[string]string{"cpu": ""} },
		"resources: cpu: \"1ki\"":   func(d *Document) { d.Resources = map[string]string{"cpu": "1ki"} },
		"resources: \"a/b/c\"":      func(d *Document) { d.Resources = map[string]string{"a/b/c": "1"} },
		"resources: \"/x\"":         func(d *Document) { d.Resources = map[string]string{"/x": "1"} },
		"resources: \"Nvidia.com/g": func(d *Document) { d.Resources = map[string]string{"Nvidia.com/gpu": "1"} },
		"prices: cpu: \"free\"":     func(d *Document) { d.Prices = map[string]string{"cpu": "free"} },
		"prices: cpu: \"0.02\"":     func(d *Document) { d.Prices = map[string]string{"cpu": "0.02"} },
		"prices: cpu: \"-1 EUR\"":   func(d *Document) { d.Prices = map[string]string{"cpu": "-1 EUR"} },
		"in one currency":           func(d *Document) { d.Prices = map[string]string{"cpu": "1 EUR", "memory": "1 USD"} },
		"is named twice":            func(d *Document) { d.StorageClasses = []string{"a", "a"} },
		"storageClasses: \"A\"":     func(d *Document) { d.StorageClasses = []string{"A"} },
		"storageClasses: 65":        func(d *Document) { d.StorageClasses = make([]string, 65) },
		"keepVolumes: 3599 s":       func(d *Document) { d.Version, d.KeepVolumes = Version2, 3599 },
		"wake: -1 times":            func(d *Document) { d.Version, d.Wake = Version2, -1 },
		"wake: 25 times":            func(d *Document) { d.Version, d.Wake = Version2, 25 },
		"keepVolumes: -1 s":         func(d *Document) { d.Version, d.KeepVolumes = Version2, -1 },
		"keepVolumes: 31536001 s":   func(d *Document) { d.Version, d.KeepVolumes = Version2, 31536001 },
		"notice: 9 s":               func(d *Document) { d.Version, d.Notice = Version2, 9 },
		"notice: -1 s":              func(d *Document) { d.Version, d.Notice = Version2, -1 },
		"notice: 2592001 s":         func(d *Document) { d.Version, d.Notice = Version2, 2592001 },
		"is what is meant without":  func(d *Document) { d.Version, d.KeepVolumes = Version2, int64(DefaultKeep/time.Second) },
	} {
		d := between(consumer, provider)
		change(&d)
		if _, err := Canonical(d); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
	d := between(consumer, provider)
	d.Resources = map[string]string{}
	for i := range 33 {
		d.Resources["r"+strings.Repeat("x", i)] = "1"
	}
	if _, err := Canonical(d); err == nil {
		t.Error("33 resources pass")
	}
}

func TestTheLargestDocumentFits(t *testing.T) {
	d := between(someone(t), someone(t))
	d.Consumer.Name, d.Provider.Name = strings.Repeat("é", 64), strings.Repeat("é", 64)
	d.Resources, d.Prices, d.StorageClasses = map[string]string{}, map[string]string{}, nil
	sub := strings.Repeat(strings.Repeat("s", 61)+".", 4)[:247]
	for i := range MaxResources {
		name := sub + "." + string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}) + "/" + strings.Repeat("n", 63)
		d.Resources[name], d.Prices[name] = "123456789012345.123456789Ki", "123456789012.123456789 EUR"
	}
	for i := range MaxStorageClasses {
		d.StorageClasses = append(d.StorageClasses, sub+"."+string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}))
	}
	doc, err := Canonical(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(doc); err != nil {
		t.Fatal(err)
	}
	// Signed and in base64 it must stay below what peering takes for a contract, 128 KiB.
	if wire, err := json.Marshal(Signed{doc, make([]byte, 64), make([]byte, 64)}); err != nil || len(wire) > 100<<10 {
		t.Errorf("%d bytes on the wire, %v", len(wire), err)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	s := signed(t, someone(t), someone(t))
	for name, part := range map[string][]byte{"document": s.Document, "consumer": s.ConsumerSignature, "provider": s.ProviderSignature} {
		for i := range part {
			for bit := range 8 {
				part[i] ^= 1 << bit
				err := s.Verify()
				part[i] ^= 1 << bit
				if err == nil {
					t.Fatalf("%s: byte %d bit %d flipped: passes", name, i, bit)
				}
				if name != "document" && !strings.Contains(err.Error(), "the "+name+"'s signature") {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
}

func TestVerifySaysWhatIsWrong(t *testing.T) {
	alice, bob, mallory := someone(t), someone(t), someone(t)
	s := signed(t, alice, bob)
	half := s
	half.ProviderSignature = nil
	if err := half.Verify(); !errors.Is(err, ErrUnsigned) || !strings.Contains(err.Error(), "the provider's signature is missing") {
		t.Error(err)
	}
	if _, err := half.VerifyAs(Consumer); err != nil {
		t.Error(err)
	}
	swapped := Signed{s.Document, s.ProviderSignature, s.ConsumerSignature}
	if err := swapped.Verify(); err == nil || !strings.Contains(err.Error(), "consumer's") || !strings.Contains(err.Error(), "provider's") {
		t.Error(err)
	}
	short := s
	short.ConsumerSignature = s.ConsumerSignature[:63]
	if err := short.Verify(); err == nil || !strings.Contains(err.Error(), "has 63 bytes, want 64") {
		t.Error(err)
	}
	if err := s.SignAs(Provider, mallory); err == nil {
		t.Error("a stranger signs as provider")
	}
	if err := s.SignAs("witness", bob); err == nil {
		t.Error("a witness signs")
	}
	// A signature by the same key of the bare document was not given for a contract.
	bare := s
	bare.ProviderSignature = bob.Sign(s.Document)
	if err := bare.Verify(); err == nil {
		t.Error("a signature without domain passes")
	}
}

func TestRevisions(t *testing.T) {
	alice, bob := someone(t), someone(t)
	old := between(alice, bob)
	next := old
	next.Revision = 2
	if err := next.Follows(old); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Document){
		"the same":      func(d *Document) { d.Revision = 1 },
		"other ID":      func(d *Document) { d.ID = NewID() },
		"other cluster": func(d *Document) { d.Consumer.ID = someone(t).ID() },
	} {
		d := next
		change(&d)
		if d.Follows(old) == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestInForce(t *testing.T) {
	d := between(someone(t), someone(t))
	for at, want := range map[time.Time]bool{
		d.NotBefore.Add(-1): false, d.NotBefore: true, d.NotAfter.Add(-1): true, d.NotAfter: false,
	} {
		if d.InForce(at) != want {
			t.Errorf("%s: %v", at, !want)
		}
	}
}

func TestNewID(t *testing.T) {
	form, seen := regexp.MustCompile(`^[a-z0-9]{16}$`), map[string]bool{}
	for range 1000 {
		id := NewID()
		if !form.MatchString(id) || CheckID(id) != nil || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
	}
}

func FuzzParse(f *testing.F) {
	doc, err := Canonical(between(fixed(f, 1), fixed(f, 2)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	later := between(fixed(f, 1), fixed(f, 2))
	later.Version, later.KeepVolumes = Version2, 3600
	if doc, err = Canonical(later); err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	later.Notice = 86400
	if doc, err = Canonical(later); err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add([]byte(`{"version":"kith.dev/contract/v1","resources":{"cpu":"1e3"}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		d, err := Parse(doc)
		if err != nil {
			return
		}
		again, err := Canonical(d)
		if err != nil || !bytes.Equal(again, doc) {
			t.Fatalf("%v\n%q\n%q", err, doc, again)
		}
	})
}

func FuzzVerify(f *testing.F) {
	good := signed(f, fixed(f, 1), fixed(f, 2))
	wire, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Add([]byte(`{"document":"e30="}`))
	f.Fuzz(func(t *testing.T, wire []byte) {
		var s Signed
		if json.Unmarshal(wire, &s) != nil || s.Verify() != nil {
			return
		}
		// Nobody but the fuzzer's seed holds keys, so only the seed's own contract may pass.
		if !bytes.Equal(s.Document, good.Document) || !bytes.Equal(s.ConsumerSignature, good.ConsumerSignature) || !bytes.Equal(s.ProviderSignature, good.ProviderSignature) {
			t.Fatalf("a forged contract passes: %s", wire)
		}
	})
}

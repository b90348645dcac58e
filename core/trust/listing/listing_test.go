package listing

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func someone(t testing.TB) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func listed(who *identity.Identity) Document {
	return Document{
		Version:   Version,
		Provider:  contract.Party{ID: who.ID(), Name: "carol", Key: who.Public()},
		Resources: map[string]string{"cpu": "2", "memory": "4Gi"},
		Prices:    map[string]string{"cpu": "0.02 EUR"},
		Created:   noon, NotAfter: noon.Add(15 * time.Minute),
	}
}

// What a provider signed is read as it was written; what somebody else made of it is not.
func TestOnlyTheProviderListsItself(t *testing.T) {
	carol, eve := someone(t), someone(t)
	signed, err := Sign(listed(carol), carol)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := signed.Verify(); err != nil || d.Resources["cpu"] != "2" || !d.Current(noon.Add(time.Minute)) {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := Sign(listed(carol), eve); err == nil {
		t.Error("eve lists carol")
	}
	cheaper := Signed{Document: bytes.Replace(signed.Document, []byte("0.02"), []byte("0.01"), 1), Signature: signed.Signature}
	if _, err := cheaper.Verify(); err == nil {
		t.Error("a listing whose price was changed is taken")
	}
	if _, err := (Signed{Document: signed.Document}).Verify(); err == nil {
		t.Error("a listing without signature is taken")
	}
	forged := Signed(canonical.Sign(signed.Document, Version, eve))
	if _, err := forged.Verify(); err == nil {
		t.Error("eve's signature of carol's listing is taken")
	}
	other := Signed(canonical.Sign(signed.Document, contract.Version, carol))
	if _, err := other.Verify(); err == nil {
		t.Error("a signature for another kind of document is taken")
	}
}

// A listing is good for its minutes, whichever way the clocks differ, and never for longer than an hour.
func TestAListingIsGoodForMinutes(t *testing.T) {
	d := listed(someone(t))
	for at, want := range map[time.Duration]bool{-11 * time.Minute: false, -9 * time.Minute: true, 0: true, 14 * time.Minute: true, 15 * time.Minute: false} {
		if got := d.Current(noon.Add(at)); got != want {
			t.Errorf("%s after it was made: %v", at, got)
		}
	}
	for name, change := range map[string]func(*Document){
		"for two hours":     func(d *Document) { d.NotAfter = d.Created.Add(2 * time.Hour) },
		"ends as it begins": func(d *Document) { d.NotAfter = d.Created },
		"of no year":        func(d *Document) { d.Created = time.Time{} },
		"of nothing":        func(d *Document) { d.Resources = nil },
		"less than nothing": func(d *Document) { d.Resources["cpu"] = "-2" },
		"two currencies":    func(d *Document) { d.Prices = map[string]string{"cpu": "1 EUR", "memory": "1 USD"} },
		"another's ID":      func(d *Document) { d.Provider.Name = "" },
		"of the future":     func(d *Document) { d.Version = "kith.dev/listing/v9" },
	} {
		who := someone(t)
		d := listed(who)
		if change(&d); d.Validate() == nil {
			t.Errorf("%s: it is taken", name)
		}
		if _, err := Sign(d, who); err == nil {
			t.Errorf("%s: it is signed", name)
		}
	}
}

// What is read is written in one way only.
func FuzzVerify(f *testing.F) {
	carol := someone(f)
	signed, err := Sign(listed(carol), carol)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed.Document)
	f.Add(bytes.ReplaceAll(signed.Document, []byte(`"cpu"`), []byte(`"CPU"`)))
	f.Add([]byte(strings.Repeat("[", 1000)))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s := Signed(canonical.Sign(doc, Version, carol))
		d, err := s.Verify()
		if err != nil {
			return
		}
		if again, err := canonical.Write(d, MaxDocument); err != nil || !bytes.Equal(again, doc) {
			t.Errorf("%s, %v", again, err)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
	})
}

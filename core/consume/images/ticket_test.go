package images

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

func someone(t testing.TB) *identity.Identity {
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	me, err := identity.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

var (
	heldImage = "docker.io/shop/web@sha256:" + strings.Repeat("a", 64)
	heldPart  = "sha256:" + strings.Repeat("b", 64)
	signed    = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
)

func TestATicketIsHomesWord(t *testing.T) {
	home, holder, taker, other := someone(t), someone(t), someone(t), someone(t)
	good := Ticket{Holder: holder.ID(), Taker: taker.ID(), Image: heldImage, Digest: heldPart, Until: signed.Add(lasts)}
	sent, err := good.Sign(home)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadTicket(sent, heldPart, signed)
	if err != nil || read.Home != home.ID() || read.Holder != holder.ID() || read.Taker != taker.ID() || read.Image != heldImage {
		t.Fatalf("%+v %v", read, err)
	}
	if _, err := ReadTicket(sent, heldPart, signed.Add(-skew)); err != nil {
		t.Errorf("home's clock goes ahead: %v", err)
	}

	// forged has another sign it in home's name, or changes it after home signed.
	forged := func(change func(*Ticket)) string {
		text, signature, _ := strings.Cut(sent, ".")
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var is Ticket
		if err := json.Unmarshal(raw, &is); err != nil {
			t.Fatal(err)
		}
		change(&is)
		if raw, err = json.Marshal(is); err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw) + "." + signature
	}
	sign := func(change func(*Ticket)) string {
		is := good
		change(&is)
		text, err := is.Sign(home)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for what, c := range map[string]struct {
		sent string
		at   time.Time
	}{
		"nothing":                  {"", signed},
		"half":                     {strings.Split(sent, ".")[0], signed},
		"no base64":                {"%." + sent, signed},
		"no JSON":                  {"AAAA." + strings.Split(sent, ".")[1], signed},
		"endless":                  {strings.Repeat("A", longestTicket+1), signed},
		"another taker":            {forged(func(t *Ticket) { t.Taker = other.ID() }), signed},
		"another home, its key":    {forged(func(t *Ticket) { t.Home = other.ID() }), signed},
		"another key":              {forged(func(t *Ticket) { t.Key = other.Public() }), signed},
		"a short key":              {forged(func(t *Ticket) { t.Key = t.Key[:31] }), signed},
		"for longer":               {forged(func(t *Ticket) { t.Until = t.Until.Add(time.Minute) }), signed},
		"too late":                 {sent, signed.Add(lasts + skew + time.Second)},
		"for ever":                 {sign(func(t *Ticket) { t.Until = signed.Add(24 * time.Hour) }), signed},
		"another part":             {sign(func(t *Ticket) { t.Digest = "sha256:" + strings.Repeat("c", 64) }), signed},
		"an image without digest":  {sign(func(t *Ticket) { t.Image = "docker.io/shop/web:dev" }), signed},
		"an image without a place": {sign(func(t *Ticket) { t.Image = "web" + heldImage[len("docker.io/shop/web"):] }), signed},
	} {
		if got, err := ReadTicket(c.sent, heldPart, c.at); err == nil {
			t.Errorf("%s: taken: %+v", what, got)
		}
	}
	if _, err := ReadTicket(sign(func(t *Ticket) { t.Digest = "b" }), "b", signed); err == nil {
		t.Error("a digest that is none")
	}
}

func FuzzReadTicket(f *testing.F) {
	sent, err := Ticket{Image: heldImage, Digest: heldPart, Until: signed}.Sign(someone(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sent)
	f.Add("e30.AA")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ReadTicket(text, heldPart, signed); err == nil && (got.Digest != heldPart || len(got.Key) != 32) {
			t.Errorf("%+v", got)
		}
	})
}

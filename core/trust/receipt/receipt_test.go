package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

var begin = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// parties are a consumer and a provider.
func parties(t testing.TB) (alice, bob *identity.Identity) {
	t.Helper()
	for _, who := range []**identity.Identity{&alice, &bob} {
		var err error
		if *who, err = identity.Load(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	return alice, bob
}

func signedContract(t testing.TB, alice, bob *identity.Identity) contract.Signed {
	t.Helper()
	s, err := contract.New(contract.Document{
		Version: contract.Version, ID: "abcdefgh12345678", Revision: 1,
		Consumer:  contract.Party{ID: alice.ID(), Name: "alice", Key: alice.Public()},
		Provider:  contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		Terms:     contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Baseline, Prices: map[string]string{"cpu": "0.02 EUR"}},
		NotBefore: begin, NotAfter: begin.Add(24 * time.Hour), Created: begin,
	})
	if err == nil {
		err = errors.Join(s.SignAs(contract.Consumer, alice), s.SignAs(contract.Provider, bob))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// file is a contract with three receipts, the first of them answered, in lines.
func file(t testing.TB) (lines []string, alice, bob *identity.Identity) {
	t.Helper()
	alice, bob = parties(t)
	add := func(e Entry) {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line)+"\n")
	}
	s := signedContract(t, alice, bob)
	add(Entry{Contract: &s})
	previous := ""
	for i := range int64(3) {
		r := Receipt{
			Version: Version, Contract: "abcdefgh12345678", Revision: 1, Sequence: i + 1, Consumer: alice.ID(), Provider: bob.ID(),
			From: begin.Add(time.Duration(i) * time.Hour), To: begin.Add(time.Duration(i+1) * time.Hour),
			Reserved: Sums{"cpu": "14400000"}, Used: Sums{"cpu": "5400000"}, Prices: map[string]string{"cpu": "0.02 EUR"}, Previous: previous, Last: i == 2,
		}
		r.Due, r.Total, r.Currency, _ = Due(r.Used, r.Prices)
		s, err := Sign(r, bob)
		if err != nil {
			t.Fatal(err)
		}
		add(Entry{Receipt: &s})
		if previous = s.Hash(); i == 0 {
			a, err := SignAnswer(Answer{Version: AnswerVersion, Contract: r.Contract, Sequence: 1, Receipt: previous, Verdict: Agreed}, alice)
			if err != nil {
				t.Fatal(err)
			}
			add(Entry{Answer: &a})
		}
	}
	return lines, alice, bob
}

func TestAFileOfReceipts(t *testing.T) {
	lines, _, _ := file(t)
	c, err := ReadFile(strings.NewReader(strings.Join(lines, "")))
	if err != nil || len(c.Items) != 3 || c.Items[0].Answer == nil || c.Items[1].Answer != nil || c.Items[2].Receipt.Total != "0.03" {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err := ReadFile(strings.NewReader(lines[0] + lines[3] + lines[4])); err != nil || c.Items[0].Receipt.Sequence != 2 {
		t.Errorf("old ones go in time: %v", err)
	}
}

// Whatever is done to a file, the first receipt that is wrong is named.
func TestWhatIsWrongIsNamed(t *testing.T) {
	lines, alice, bob := file(t)
	others, mallory, _ := file(t)
	edit := func(line int, change func(*Receipt), who *identity.Identity) string {
		e, err := ParseEntry([]byte(lines[line]))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(e.Receipt.Document)
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		doc, err := write(r)
		if err != nil { // then nobody signs it as it is
			doc, _ = json.Marshal(r)
		}
		out, err := json.Marshal(Entry{Receipt: new(Signed(canonical.Sign(doc, Version, who)))})
		if err != nil {
			t.Fatal(err)
		}
		return string(out) + "\n"
	}
	with := func(line int, text string) []string {
		all := append([]string{}, lines...)
		all[line] = text
		return all
	}
	for name, c := range map[string]struct {
		lines []string
		says  string
		at    int64
	}{
		"one is missing":           {[]string{lines[0], lines[1], lines[2], lines[4]}, "receipt 2: is missing", 2},
		"two change places":        {[]string{lines[0], lines[1], lines[4], lines[3]}, "receipt 2: is missing", 2},
		"one comes twice":          {[]string{lines[0], lines[1], lines[1]}, "receipt 1: comes again", 1},
		"signed by another":        {with(3, edit(3, func(*Receipt) {}, mallory)), "receipt 2: is forged", 2},
		"signed by the consumer":   {with(3, edit(3, func(*Receipt) {}, alice)), "receipt 2: is forged", 2},
		"written anew by its own":  {with(1, edit(1, func(r *Receipt) { r.To = r.To.Add(-time.Minute) }, bob)), "receipt 1: is another one than the consumer answered to", 1},
		"a replaced one, later":    {with(3, edit(3, func(r *Receipt) { r.To = r.To.Add(-time.Minute) }, bob)), "receipt 3: does not follow receipt 2", 3},
		"a sum that does not hold": {with(3, edit(3, func(r *Receipt) { r.Total = "3" }, bob)), "receipt 2: is forged", 2},
		"other prices": {with(3, edit(3, func(r *Receipt) {
			r.Prices = map[string]string{"cpu": "2 EUR"}
			r.Due, r.Total, r.Currency, _ = Due(r.Used, r.Prices)
		}, bob)), "receipt 2: has other prices", 2},
		"it begins too early":  {with(3, edit(3, func(r *Receipt) { r.From = r.From.Add(-time.Minute) }, bob)), "receipt 2: begins before receipt 1 ends", 2},
		"of another contract":  {with(3, others[3]), "receipt 2: is forged", 2},
		"another's contract":   {append([]string{}, append(lines, others[0])...), "is not a revision of", 0},
		"no contract":          {lines[1:], "stands before the contract", 0},
		"nothing":              {nil, "there is no contract in it", 0},
		"no JSON":              {with(3, "{\n"), "line 4", 0},
		"two in one line":      {with(3, `{"receipt":{"document":"","signature":""},"answer":{"document":"","signature":""}}`+"\n"), "or several of them", 0},
		"after the last":       {append(append([]string{}, lines...), edit(4, func(r *Receipt) { r.Sequence = 4 }, bob)), "receipt 4: comes after the last", 4},
		"an answer to nothing": {[]string{lines[0], lines[2]}, "receipt 1: is missing", 1},
		"a forged answer":      {with(2, others[2]), "the consumer's answer is forged", 1},
	} {
		_, err := ReadFile(strings.NewReader(strings.Join(c.lines, "")))
		fault, is := errors.AsType[*Fault](err)
		if !is || !strings.Contains(fault.Error(), c.says) || fault.Sequence != c.at {
			t.Errorf("%s: %v, want %q of receipt %d", name, err, c.says, c.at)
		}
	}
}

func TestWhatIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		used   Sums
		prices map[string]string
		due    map[string]string
		total  string
	}{
		"nothing":         {nil, nil, nil, "0"},
		"free":            {Sums{"cpu": "1000"}, nil, nil, "0"},
		"a core hour":     {Sums{"cpu": "3600000"}, map[string]string{"cpu": "0.02 EUR"}, map[string]string{"cpu": "0.02"}, "0.02"},
		"a GiB hour":      {Sums{"memory": "3865470566400"}, map[string]string{"memory": "0.004 EUR"}, map[string]string{"memory": "0.004"}, "0.004"},
		"traffic":         {Sums{"network": "1500000000"}, map[string]string{"network": "0.1 EUR"}, map[string]string{"network": "0.15"}, "0.15"},
		"a device":        {Sums{"nvidia.com/gpu": "5400"}, map[string]string{"nvidia.com/gpu": "1 EUR"}, map[string]string{"nvidia.com/gpu": "1.5"}, "1.5"},
		"a third":         {Sums{"cpu": "1200000"}, map[string]string{"cpu": "1 EUR"}, map[string]string{"cpu": "0.333333333"}, "0.333333333"},
		"not used":        {nil, map[string]string{"cpu": "1 EUR"}, map[string]string{"cpu": "0"}, "0"},
		"more than int64": {Sums{"memory": "36893488147419103232000"}, map[string]string{"memory": "1 EUR"}, map[string]string{"memory": "9544371768.888888888"}, "9544371768.888888888"},
	} {
		due, total, _, err := Due(c.used, c.prices)
		if err != nil || !maps.Equal(due, c.due) || total != c.total {
			t.Errorf("%s: %v, %s, %v; want %v, %s", name, due, total, err, c.due, c.total)
		}
	}
}

// Receipts of traffic are of a version that older readers refuse, in place of taking bytes for hours; no other is.
func TestReceiptsOfTrafficAreOfTheirOwnVersion(t *testing.T) {
	lines, _, bob := file(t)
	e, err := ParseEntry([]byte(lines[1]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(e.Receipt.Document)
	if err != nil || r.Version != Version {
		t.Fatalf("%s, %v", r.Version, err)
	}
	again, err := Sign(r, bob)
	if err != nil || !bytes.Equal(again.Document, e.Receipt.Document) {
		t.Errorf("one without traffic is written otherwise: %v", err)
	}
	r.Prices = map[string]string{"network": "0.1 EUR"}
	r.Used = Sums{"network": "1500000000"}
	r.Due, r.Total, r.Currency, _ = Due(r.Used, r.Prices)
	s, err := Sign(r, bob)
	if err != nil {
		t.Fatal(err)
	}
	party := contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}
	if read, err := s.Verify(party); err != nil || read.Version != Version2 || read.Total != "0.15" {
		t.Errorf("%+v, %v", read, err)
	}
	s = Signed(canonical.Sign(s.Document, Version, bob))
	if _, err := s.Verify(party); err == nil {
		t.Error("signed as of another version, it is good")
	}
	r.Version = Version
	if r.Validate() == nil {
		t.Error("it is taken for the first version")
	}
}

// seeds are documents of each kind.
func seeds(f *testing.F) (receipts, answers [][]byte, all []string) {
	all, _, _ = file(f)
	for _, line := range all {
		e, err := ParseEntry([]byte(line))
		switch {
		case err != nil:
			f.Fatal(err)
		case e.Receipt != nil:
			receipts = append(receipts, e.Receipt.Document)
		case e.Answer != nil:
			answers = append(answers, e.Answer.Document)
		}
	}
	return receipts, answers, all
}

// What is read is written in one way only, so that no two texts are one receipt.
func FuzzParse(f *testing.F) {
	receipts, answers, _ := seeds(f)
	for _, doc := range append(receipts, answers...) {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if r, err := Parse(doc); err == nil {
			if again, err := write(r); err != nil || !bytes.Equal(again, doc) {
				t.Errorf("%s, %v", again, err)
			}
		}
		if a, err := ParseAnswer(doc); err == nil {
			if again, err := write(a); err != nil || !bytes.Equal(again, doc) {
				t.Errorf("%s, %v", again, err)
			}
		}
	})
}

// Nothing that is not signed gets into a chain.
func FuzzReadFile(f *testing.F) {
	_, _, lines := seeds(f)
	f.Add([]byte(strings.Join(lines, "")))
	f.Add([]byte(lines[0]))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ReadFile(bytes.NewReader(text))
		if err == nil && (c.ID == "" || len(c.Items) > bytes.Count(text, []byte("\n"))+1) {
			t.Errorf("%+v", c)
		}
	})
}

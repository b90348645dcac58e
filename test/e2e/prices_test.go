//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestAContractWithPrices: bob lends at a price, alice agrees to it and has a pod there; when the contract ends both have the same receipts of it.
func TestAContractWithPrices(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range []*lab.Laptop{alice, bob} {
		eventually(t, 30*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	awaitGuests(t, bob)
	kith(t, bob, "share", "--price", "cpu=3600EUR,memory=0.5EUR,network=1000EUR") // a second of a core is an euro, and so is a MB
	eventually(t, 20*time.Second, "alice sees bob", func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	kith(t, alice, "peer", "bob", "--wait=false", "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	var code string
	eventually(t, 10*time.Second, "the request arrives", func() string {
		for _, r := range requests(t, bob) {
			code = r.Code
		}
		if code == "" {
			return "no request"
		}
		return ""
	})
	kith(t, bob, "accept", "alice", "--yes")
	eventually(t, 20*time.Second, "alice is shown the prices before anything is signed", func() string {
		if c := bobAt(t, alice).Confirm; c == nil || !strings.Contains(strings.Join(c.Terms, ";"), "cpu costs 3600 EUR an hour for each core") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	if text := kith(t, bob, "contract", "list", "-o", "json"); strings.TrimSpace(text) != "[]" {
		t.Errorf("signed without alice's word:\n%s", text)
	}
	kith(t, alice, "confirm", "bob", "--code", code, "--terms")
	eventually(t, 30*time.Second, "connected", func() string {
		if p := bobAt(t, alice); p.Outgoing != api.StateConnected || p.Prices["cpu"] != "3600 EUR" {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	eventually(t, 20*time.Second, "the node has its price", func() string {
		if got := kubectl(t, alice, "get", "node", "kith-bob", "-o", `jsonpath={.metadata.labels.kith\.dev/price-cpu} {.metadata.labels.kith\.dev/price-currency}`); got != "3600000000 EUR" {
			return got
		}
		return ""
	})
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, place("paid", "shop", "kith-bob"))
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=paid")
	address := kubectl(t, alice, "get", "pod", "-n", "shop", "paid", "-o", "jsonpath={.status.podIP}")
	for range 20 { // each some hundred bytes, and the probes are bob's own
		if out, stderr, err := alice.Exec(t.Context(), "curl", "-sS", "--max-time", "5", "http://"+address+":8080/"); err != nil {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
	}
	eventually(t, 30*time.Second, "it is counted on both sides", func() string {
		for _, p := range []*lab.Laptop{alice, bob} {
			if u := usageOf(t, p); len(u) != 1 || u[0].Due == "0" || u[0].Open == "" || u[0].Currency != "EUR" {
				return fmt.Sprintf("%s: %+v", p.Name(), u)
			}
		}
		return ""
	})
	eventually(t, 10*time.Second, "it is the namespace's", func() string {
		if text := kith(t, alice, "usage", "--by", "namespace"); !strings.Contains(text, " shop ") || !strings.Contains(text, "(reserved, unused)") {
			return text
		}
		return ""
	})
	budgets(t, alice)
	kith(t, alice, "unpeer", "bob", "--yes")
	eventually(t, 60*time.Second, "both have the last receipt, and agree", func() string {
		ours, theirs := receiptsOf(t, alice), receiptsOf(t, bob)
		if len(ours) == 0 || len(ours) != len(theirs) {
			return fmt.Sprintf("alice has %d receipts, bob %d", len(ours), len(theirs))
		}
		for i := range ours {
			if ours[i].Total != theirs[i].Total || ours[i].Verdict != api.ReceiptAgreed || theirs[i].Verdict != api.ReceiptAgreed {
				return fmt.Sprintf("alice: %+v, bob: %+v", ours[i], theirs[i])
			}
		}
		if !ours[len(ours)-1].Last {
			return "the last is to come"
		}
		return ""
	})
	hers, his := usageOf(t, alice), usageOf(t, bob)
	if n, err := strconv.ParseFloat(his[0].Used["network"], 64); err != nil || n < 20*100e-9 || n > 1 {
		t.Errorf("traffic: %v", his[0].Used)
	}
	if len(hers) != 1 || len(his) != 1 || hers[0].Due != his[0].Due || hers[0].Due == "0" || hers[0].Open != "" || hers[0].Direction != api.Outgoing || his[0].Direction != api.Incoming {
		t.Errorf("usage: alice has %+v, bob %+v", hers, his)
	}
	var split []struct{ Namespace, Part, Due string }
	if err := json.Unmarshal([]byte(kith(t, alice, "usage", "--by", "namespace", "-o", "json")), &split); err != nil {
		t.Fatal(err)
	}
	if len(split) != 2 || split[0].Namespace != "shop" || split[0].Due != hers[0].Due || split[1].Part != "unused" || split[1].Due != "0" {
		t.Errorf("by namespace: %+v, of %s", split, hers[0].Due)
	}
	if text := kith(t, alice, "usage", "-o", "focus"); !strings.Contains(text, "BilledCost,") || !strings.Contains(text, "Core-Hours") {
		t.Errorf("focus:\n%s", text)
	}
	verified(t, alice)
}

// budgets: what runs stays, what is new waits and says why, until there is money again.
func budgets(t *testing.T, alice *lab.Laptop) {
	t.Helper()
	kith(t, alice, "offload", "shop", "--budget", "0.01/month") // in the currency of the prices
	offload := func() (b api.Budget) {
		t.Helper()
		var list []api.Offload
		if err := json.Unmarshal([]byte(kith(t, alice, "offload", "-o", "json")), &list); err != nil || len(list) != 1 || list[0].Budget == nil {
			t.Fatalf("%+v, %v", list, err)
		}
		return *list[0].Budget
	}
	eventually(t, 20*time.Second, "the budget is spent", func() string {
		if b := offload(); b.State != api.BudgetSpent || b.Currency != "EUR" || len(b.Closed) != 1 || b.Closed[0].Peer != "bob" || b.Closed[0].Reason != api.ClosedSpent {
			return fmt.Sprintf("%+v", b)
		}
		return ""
	})
	apply(t, alice, place("late", "shop", "kith-bob")+strings.Replace(place("forced", "shop", "kith-bob"), "spec:\n", "spec:\n  tolerations: [{key: kith.dev/peer, operator: Exists}]\n", 1))
	eventually(t, 30*time.Second, "new pods wait for the budget, and say so", func() string {
		for _, name := range []string{"late", "forced"} {
			if got := kubectl(t, alice, "get", "pod", "-n", "shop", name, "-o", `jsonpath={.spec.nodeName}:{.status.conditions[?(@.type=="kith.dev/BudgetSpent")].message}`); !strings.HasPrefix(got, ":namespace shop has spent its budget of 0.01 EUR/month") {
				return name + ": " + got
			}
			if text := kith(t, alice, "why", "shop/"+name, "-o", "json"); !strings.Contains(text, `"reason": "Budget"`) {
				return text
			}
		}
		return ""
	})
	if text := kubectl(t, alice, "get", "events", "-n", "shop"); !strings.Contains(text, "BudgetSpent") {
		t.Errorf("events:\n%s", text)
	}
	// With a peer that stays open, new pods tolerate that one, and get what they lack later.
	kubectl(t, alice, "patch", "namespaceoffloading", "offloading", "-n", "shop", "--type", "merge", "-p", `{"spec":{"peers":["bob","elsewhere"]}}`)
	eventually(t, 10*time.Second, "the other peer is open", func() string {
		if got := kubectl(t, alice, "get", "namespace", "shop", "-o", `jsonpath={.metadata.annotations.kith\.dev/budget-open} {.metadata.annotations.kith\.dev/budget-closed}`); got != "elsewhere bob/Spent" {
			return got
		}
		return ""
	})
	apply(t, alice, place("some", "shop", "kith-bob"))
	if got := kubectl(t, alice, "get", "pod", "-n", "shop", "some", "-o", `jsonpath={.spec.tolerations[?(@.key=="kith.dev/peer")].value} {.metadata.annotations.kith\.dev/budget-narrowed}`); got != "elsewhere true" {
		t.Errorf("a pod made meanwhile tolerates %s", got)
	}
	// One that tolerates everything, and would rather be at bob's, runs at home.
	apply(t, alice, strings.NewReplacer("name: web", "name: wide", "app: web", "app: wide").Replace(web(1)))
	kubectl(t, alice, "patch", "deployment", "-n", "shop", "wide", "--type", "merge", "-p", `{"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {
		"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions": [{"key": "kith.dev/peer", "operator": "In", "values": ["bob"]}]}}]}}}}}}`)
	kubectl(t, alice, "rollout", "status", "-n", "shop", "deployment/wide", "--timeout", "60s")
	if got := kubectl(t, alice, "get", "pod", "-n", "shop", "-l", "app=wide", "-o", `jsonpath={.items[*].metadata.annotations.kith\.dev/budget-fenced}`); !strings.Contains(got, "elsewhere") {
		t.Errorf("a pod that tolerates everything is fenced in by %q", got)
	}
	if got := kubectl(t, alice, "get", "pod", "-n", "shop", "-l", "app=wide", "-o", "jsonpath={.items[*].spec.nodeName}"); strings.Contains(got, "kith-bob") {
		t.Errorf("a pod that tolerates everything is on %s", got)
	}
	kubectl(t, alice, "delete", "deployment", "-n", "shop", "wide")
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=paid") // it runs on
	kith(t, alice, "offload", "shop", "--budget", "1000000 EUR/month")
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=late")
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=forced")
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=some")
	if b := offload(); b.State != api.BudgetWithin || len(b.Closed) > 0 {
		t.Errorf("%+v", b)
	}
	kubectl(t, alice, "delete", "pod", "-n", "shop", "late", "forced", "some")
}

// verified exports the receipts with bob, and tries to pass forged ones off.
func verified(t *testing.T, alice *lab.Laptop) {
	t.Helper()
	exported := kith(t, alice, "receipt", "export", "bob")
	file := filepath.Join(t.TempDir(), "receipts.jsonl")
	verify := func(text string) (string, error) { // on this machine, where no kithd runs
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "kith", "receipt", "verify", file).CombinedOutput()
		return string(out), err
	}
	if out, err := verify(exported); err != nil || !strings.Contains(out, "due: ") {
		t.Errorf("%v: %s", err, out)
	}
	lines := strings.SplitAfter(exported, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, `{"receipt":`) {
			continue
		}
		var e struct {
			Receipt struct {
				Document  []byte `json:"document"`
				Signature []byte `json:"signature"`
			} `json:"receipt"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		e.Receipt.Document = []byte(strings.Replace(string(e.Receipt.Document), `"revision":1`, `"revision":2`, 1))
		forged, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = string(forged) + "\n"
		if out, err := verify(strings.Join(lines, "")); err == nil || !strings.Contains(out, "receipt 1: is forged") {
			t.Errorf("forged: %v: %s", err, out)
		}
		return
	}
	t.Error("no receipt was exported")
}

// bobAt is bob with all that a laptop knows of him.
func bobAt(t *testing.T, p *lab.Laptop) api.Peer {
	t.Helper()
	var list []api.Peer
	if err := json.Unmarshal([]byte(kith(t, p, "peers", "bob", "-o", "json")), &list); err != nil || len(list) != 1 {
		t.Fatalf("%d peers, %v", len(list), err)
	}
	return list[0]
}

type usageLine struct {
	Due, Open, Currency string
	Used                map[string]string
	Direction           api.Direction
}

func usageOf(t *testing.T, p *lab.Laptop) (all []usageLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(kith(t, p, "usage", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func receiptsOf(t *testing.T, p *lab.Laptop) (all []api.Receipt) {
	t.Helper()
	if err := json.Unmarshal([]byte(kith(t, p, "receipt", "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

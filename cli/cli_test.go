package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kith.dev/cli"
	"kith.dev/cli/program"
	"kith.dev/core/api"
	"kith.dev/core/api/verdict"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/alone"
	"kith.dev/daemon/config"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	bobID   = "MFZWI3D-BOBBOBB-OBBOBBO-BBOBBOB-BOBBOBB-OBBOBBO-BBOBBOB-BOBBOBB"
	carolID = "CAROLAA-CAROLAA-CAROLAA-CAROLAA-CAROLAA-CAROLAA-CAROLAA-CAROLAA"
)

// world is a laptop called alice: bob is connected, carol asks, and mallory has chosen a name that drives terminals.
func world() *apitest.Backend {
	return &apitest.Backend{
		State: api.Status{
			Name: "alice", ID: "ALICEAA-ALICEAA", ShortID: "aliceaa", Version: "1.2.3", Mode: api.Autonomous, Started: now.Add(-3 * time.Hour),
			Engine:   api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady, Version: "v1.36.3", Node: "alice", NodeIP: "10.42.255.1", Kubeconfig: "/var/lib/kith/k8s/admin.kubeconfig"},
			Sharing:  api.Sharing{Policy: "default", Share: "50%", Amounts: api.Resources{"cpu": "2", "memory": "8Gi", "pods": "55"}, Used: api.Resources{"cpu": "500m"}},
			Counts:   api.Counts{Peers: 3, Connected: 1, Requests: 1, Contracts: 1, PodsAbroad: 2, Guests: 1},
			Listen:   api.List[api.Listener]{{Name: "peer-api", Network: "tcp", Address: "0.0.0.0:6450"}, {Name: "wireguard", Network: "udp", Address: "0.0.0.0:6450"}},
			Waiting:  api.List[api.Problem]{{Severity: api.SeverityInfo, What: "carol asks to use this laptop, and would get cpu 2", Why: "its owner must see the code 402817 too; it lapses in 9 min", Do: "kith accept carol-7f3a, or kith decline carol-7f3a"}},
			Problems: api.List[api.Problem]{{Severity: api.SeverityWarning, What: "the tunnel to bob is slow", Why: "no handshake for 40 s", Do: "is UDP port 6450 open at bob?"}},
		},
		Known: []api.Peer{
			{
				Name: "bob", ID: bobID, ShortID: "mfzwi3d", Source: api.SourceLAN, Addresses: []string{"192.168.1.20:6450", "[fe80::1%eth0]:6450"},
				LastSeen: now.Add(-5 * time.Second), Reachable: true, Outgoing: api.StateConnected, Incoming: api.StateNone, Node: "kith-bob",
				Offered: api.Resources{"cpu": "2", "memory": "4Gi"}, Used: api.Resources{"cpu": "500m", "memory": "256Mi"}, Pods: api.PeerPods{AbroadRange: "10.64.3.0/24", GuestsRange: "10.90.7.0/24", Abroad: 2, Guests: 1},
				Tunnel: api.Tunnel{Up: true, LastHandshake: now.Add(-40 * time.Second), RX: 1536 << 10, TX: 900, RTT: api.Duration(1843 * time.Microsecond)},
			},
			{
				Name: "carol", ID: carolID, ShortID: "carolaa", Source: api.SourceDNS, Addresses: []string{"carol.example.org:6450"},
				Gives:    &api.Gives{State: api.GivesSome, Resources: api.Resources{"cpu": "2", "memory": "4Gi"}},
				LastSeen: now.Add(-10 * time.Minute), Outgoing: api.StateNone, Incoming: api.StateRequested, Code: "402817", Why: "waits for your answer",
			},
			{
				Name: "mal\x1b[2Jlory\u202e\u009b31m\nroot", ID: "MALLORY", ShortID: "mallory", Source: api.SourceManual, Addresses: []string{"10.0.0.66:6450"},
				Outgoing: api.StateDeclined, Incoming: api.StateNone, Why: "declined 2 min ago: <go away>",
			},
		},
		Pending: []api.Request{
			{ID: "7f3a", Peer: "carol", PeerID: carolID, Direction: api.Incoming, Code: "402817", Asked: api.Resources{"cpu": "100000", "memory": "1Gi"}, Granted: api.Resources{"cpu": "2", "memory": "1Gi", "pods": "55", "ephemeral-storage": "20Gi"}, State: api.StateRequested, Address: "carol.example.org", Created: now.Add(-time.Minute), Expires: now.Add(9 * time.Minute)},
			{ID: "bob-4y8d", Peer: "bob", PeerID: bobID, Direction: api.Incoming, InForce: api.Resources{"cpu": "1", "memory": "2Gi", "pods": "40"}, Asked: api.Resources{"cpu": "2", "memory": "2Gi", "pods": "40"},
				Granted: api.Resources{"cpu": "2", "memory": "2Gi", "pods": "40"}, State: api.StateRequested, Expires: now.Add(8 * time.Minute)},
			{ID: "dave-1x1x", Peer: "dave", PeerID: "DAVE", Direction: api.Incoming, Refusal: "sharing is paused (SharingPolicy default)", State: api.StateRequested, Expires: now.Add(7 * time.Minute)},
			{ID: "alice-2c2c", Peer: "bob", PeerID: bobID, Direction: api.Outgoing, InForce: api.Resources{"cpu": "2", "memory": "4Gi"}, Asked: api.Resources{"cpu": "3", "memory": "4Gi"}, State: api.StateRequested, Expires: now.Add(5 * time.Minute)},
		},
		Records: api.DNSRecords{Name: "alice", ID: "ALICEAA-ALICEAA", Domain: "example.org.", Notes: api.List[string]{"these addresses are private: peers elsewhere need one that leads here, given with --address"},
			Records: api.List[api.DNSRecord]{
				{Name: "_kith._tcp.example.org.", TTL: 3600, Type: "SRV", Data: "0 0 6450 alice.example.org."},
				{Name: "_kith._tcp.alice.example.org.", TTL: 3600, Type: "SRV", Data: "0 0 6450 alice.example.org."},
				{Name: "_kith._tcp.alice.example.org.", TTL: 3600, Type: "TXT", Data: `"v=1" "id=aliceaaaliceaa" "name=alice"`},
				{Name: "alice.example.org.", TTL: 300, Type: "A", Data: "10.0.0.7"},
				{Name: "alice.example.org.", TTL: 300, Type: "AAAA", Data: "fd00::7"},
			}},
		Accounts: []api.Account{
			{
				Contract: "abcdefgh12345678", Peer: "bob", PeerID: "BOB", Direction: api.Outgoing,
				Receipts: []api.Receipt{
					{Sequence: 1, Revision: 1, From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour), Used: map[string]string{"cpu": "5400000", "memory": "7730941132800", "pods": "10800"}, Reserved: map[string]string{"cpu": "7200000", "memory": "7730941132800"},
						Shares: api.List[api.ReceiptShare]{
							{Used: map[string]string{"cpu": "600000"}, Due: map[string]string{"cpu": "0.003333334"}, Total: "0.003333334"},
							{Namespace: "shop", Used: map[string]string{"cpu": "4800000", "memory": "7730941132800", "pods": "10800"}, Due: map[string]string{"cpu": "0.026666666"}, Total: "0.026666666"},
						},
						Prices: map[string]string{"cpu": "0.02 EUR"}, Due: map[string]string{"cpu": "0.03"}, Total: "0.03", Currency: "EUR", Verdict: api.ReceiptAgreed},
					{Sequence: 2, Revision: 1, From: now.Add(-time.Hour), To: now, Used: map[string]string{"cpu": "3600000"},
						Shares: api.List[api.ReceiptShare]{{Namespace: "batch", Used: map[string]string{"cpu": "3600000"}, Due: map[string]string{"cpu": "0.02"}, Total: "0.02"}},
						Prices: map[string]string{"cpu": "0.02 EUR"}, Due: map[string]string{"cpu": "0.02"}, Total: "0.02", Currency: "EUR", Verdict: api.ReceiptDisputed, Counted: map[string]string{"cpu": "1"}},
				},
				Open: &api.Receipt{From: now, To: now.Add(time.Minute), Used: map[string]string{"cpu": "60000"}, Prices: map[string]string{"cpu": "0.02 EUR"}, Due: map[string]string{"cpu": "0.000333333"}, Total: "0.000333333", Currency: "EUR"},
			},
			{
				Contract: "zyxwvuts12345678", Peer: "=carol", PeerID: "CAROL", Direction: api.Incoming, Fault: "receipt 3: is missing",
				Receipts: []api.Receipt{{Sequence: 1, Revision: 1, From: now.Add(-time.Hour), To: now, Used: map[string]string{"cpu": "1200000", "nvidia.com/gpu": "1800"}, Total: "0"}},
			},
		},
		Files: []api.ReceiptFile{{Contract: "abcdefgh12345678", Lines: []json.RawMessage{json.RawMessage(`{"receipt":{"document":"e30=","signature":""}}`)}}},
		Signed: []api.Contract{{
			Name: "bob-out", ID: "a1b2c3d4e5f6g7h8", Revision: 2, Role: api.Consumer, Peer: "bob", PeerID: bobID, Resources: api.Resources{"cpu": "2", "memory": "4Gi"},
			Used: api.Resources{"cpu": "500m"}, State: api.StateConnected, Created: now.Add(-50 * time.Minute), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(720 * time.Hour),
			Document: []byte(`{"a":1}`), Signatures: api.List[api.Signature]{{Role: api.Consumer, ID: "ALICEAA", PublicKey: []byte("k"), Signature: []byte("s")}},
		}},
		Shared: []api.Policy{
			{Name: "default", Amounts: api.ShareOf("50%"), PodSecurity: api.PodSecurityBaseline},
			{Name: "family", Peers: []string{bobID, "carol"}, Names: map[string]string{bobID: "bob"}, Amounts: api.Resources{"cpu": "6", "nvidia.com/gpu": "1"}, AutoAccept: true, PodSecurity: api.PodSecurityRestricted,
				Offered: api.Resources{"cpu": "2", "nvidia.com/gpu": "1"}, Notes: []string{"cpu 6 is more than this laptop has: at most 2 will be offered"}},
		},
		Abroad: []api.Offload{{
			Namespace: "shop", Strategy: api.StrategyBoth, Mapping: api.MappingDefault, Volumes: api.VolumesHome, Pods: api.OffloadPods{Home: 1, Abroad: 2},
			Budget: &api.Budget{
				Amount: "5", Currency: "EUR", Period: api.PeriodDay, State: api.BudgetSpent, Spent: "5.023456789", Since: now.Truncate(24 * time.Hour), Until: now.Truncate(24 * time.Hour).Add(24 * time.Hour),
				Closed: api.List[api.BudgetClosed]{{Peer: "bob", Reason: api.ClosedSpent}, {Peer: "carol", Reason: api.ClosedOtherCurrency}},
			},
			Twins: api.List[api.Twin]{{Peer: "bob", Namespace: "shop-aliceaa", Ready: true}},
		}},
		Kept: []api.Volume{
			{Direction: api.Outgoing, Peer: "bob", Namespace: "shop", Claim: "data", Size: "10Gi", Volume: "pvc-1", Phase: "Bound"},
			{Direction: api.Incoming, Peer: "bob", Namespace: "batch", Claim: "results", Size: "1Gi", Volume: "pvc-2", Phase: "Released", KeptUntil: now.Add(24 * time.Hour)},
		},
		Here: []api.Guest{{Namespace: "batch", Name: "job-1", Consumer: "bob", ConsumerID: bobID, Phase: "Running", Node: "alice", Resources: api.Resources{"cpu": "500m"}, Created: now.Add(-90 * time.Minute)}},
		Use: []api.Top{
			{Peer: "bob", Direction: api.Outgoing, Granted: api.Resources{"cpu": "2", "memory": "4Gi", "pods": "20"}, Requested: api.Resources{"cpu": "500m", "memory": "256Mi", "pods": "2"}, Used: api.Resources{"cpu": "120m", "memory": "200Mi", "pods": "2"},
				Pods: []api.TopPod{{Namespace: "shop", Name: "web-1", Requested: api.Resources{"cpu": "500m", "memory": "256Mi"}, Used: api.Resources{"cpu": "120m", "memory": "200Mi"}}, {Namespace: "shop", Name: "web-2"}}},
			{Peer: "dave", Direction: api.Incoming, Granted: api.Resources{"cpu": "1", "memory": "1Gi", "pods": "10"}, Requested: api.Resources{}, Used: api.Resources{"pods": "0"}, Unknown: "the kubelet says nothing:\x1b[2J why"},
		},
		Reasons: map[string]api.Why{
			"shop/web": {Namespace: "shop", Name: "web", State: api.PodWaiting, Since: now.Add(-3 * time.Minute), Causes: []api.Cause{
				{Reason: api.CauseNoRoom, Laptop: "alice", Who: api.WhoYou, What: "alice has no room for it", Why: "cpu: it asks for 2, and 0.3 of 4 is free", Do: "have it ask for less",
					Short: api.List[api.Short]{{Resource: "cpu", Asked: "2", Free: "300m", Of: "4"}}},
				{Reason: api.CauseUnreachable, Laptop: "bob", Peer: true, Who: api.WhoPeer, Since: now.Add(-2 * time.Minute), What: "bob cannot be reached", Why: "went to \x1b[2Jsleep", Do: "see that it is awake"},
			}},
			"shop/guest": {Namespace: "shop", Name: "guest", Guest: "bob", State: api.PodFailing, Laptop: "alice", Causes: []api.Cause{{Reason: api.CauseCrashes, Laptop: "alice", Who: api.WhoHome, What: "container a ends again and again", Do: "`kith why` at home says more"}}},
			"shop/far":   {Namespace: "shop", Name: "far", State: api.PodReady, Laptop: "bob", Since: now.Add(-time.Hour), Causes: []api.Cause{{Reason: api.CauseRuns, Laptop: "bob", Who: api.WhoNobody, What: "it runs on bob"}}},
		},
		Offers: map[string]api.Offered{
			"bob": {Peer: "bob", ID: bobID, Policy: "family", Prices: map[string]string{"cpu": "0.022 EUR"}, Margin: "10%",
				From: api.List[api.OfferedFrom]{{Peer: "dave", Prices: map[string]string{"cpu": "0.02 EUR"}}, {Peer: "er\x1b[2Jin", Prices: map[string]string{"cpu": "1 USD"}, LeftOut: true}},
				Has:  api.Resources{"cpu": "1", "memory": "2Gi", "pods": "40"},
				Policies: api.List[api.PolicyLook]{
					{Name: "lab", Priority: 20, Not: api.NotForLabels}, {Name: "family", Priority: 10, Selected: api.SelectedByID, Applies: true}, {Name: "default", Selected: api.SelectedEverybody, Reason: api.NoOfferPaused, Why: "sharing is paused (SharingPolicy default)"},
				},
				Resources: api.List[api.OfferedResource]{
					{Name: "cpu", Offered: "2", Bound: api.BoundByOwnPods, Policy: "6", Amount: "6", Others: "0", Allocatable: "8", OwnPods: "6", Granted: "0", Has: "1"},
					{Name: "ephemeral-storage", Offered: "10Gi", Bound: api.BoundByDisk, Policy: "50%", Amount: "50Gi", Others: "0", Allocatable: "100Gi", OwnPods: "1Gi", Granted: "0", Disk: "10Gi"},
				}},
			"carol": {Peer: "car\x1b[2Jol", ID: carolID, Policy: "default", Reason: api.NoOfferPaused, Why: "sharing is paused (SharingPolicy default)",
				Policies: api.List[api.PolicyLook]{{Name: "default", Selected: api.SelectedEverybody, Applies: true, Reason: api.NoOfferPaused, Why: "sharing is paused (SharingPolicy default)"}}},
		},
		Config: []byte("apiVersion: v1\nkind: Config\n"),
		Findings: []api.Finding{
			{Area: api.AreaEngine, Name: "api-server", State: api.CheckOK, What: "the API server answers in 3ms, Kubernetes v1.36.3"},
			{Area: api.AreaKernel, Name: "inotify", State: api.CheckWarning, What: "fs.inotify.max_user_instances is only 64", Why: "with many pods some fail", Do: "sysctl -w fs.inotify.max_user_instances=1024", Fix: []string{"sysctl -w fs.inotify.max_user_instances=1024"}},
			{Area: api.AreaPeer, Peer: "bob", Name: "connect", State: api.CheckOK, What: "TCP connects to 192.168.1.20:6450 in 400µs"},
			{Area: api.AreaPeer, Peer: "carol", Name: "connect", State: api.CheckFail, What: "no TCP connection to carol at carol.example.org:6450 comes about", Why: "carol.example.org:6450: no answer\x1b[2J\u202e", Do: "is carol on and on this network?"},
		},
	}
}

// kith runs one command line.
type kith struct {
	socket             string
	in                 io.Reader
	terminal, noColour bool
	ctx                context.Context
	home               string
	kithd              string // the program; "": the test's own
	agent              string // the lease, in the container of a node's agent
	pager              string
	env                map[string]string // more of the environment
}

func (k kith) run(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	if k.in == nil {
		k.in = strings.NewReader("")
	}
	if k.ctx == nil {
		k.ctx = context.Background()
	}
	if k.kithd == "" {
		k.kithd = os.Args[0]
	}
	code = cli.Run(k.ctx, program.Env{
		Args: args, In: k.in, Out: &o, Err: &e, Now: func() time.Time { return now },
		Getenv: func(name string) string {
			switch {
			case name == "KITH_SOCKET":
				return k.socket
			case name == api.EnvAgentLease:
				return k.agent
			case name == "HOME":
				return k.home
			case name == "PAGER":
				return k.pager
			case name == "NO_COLOR" && k.noColour:
				return "1"
			}
			return k.env[name]
		},
		InTerminal: k.terminal, OutTerminal: k.terminal, ErrTerminal: k.terminal,
		Version: "1.2.3", Commit: "c0ffee", Kithd: k.kithd,
	})
	return o.String(), e.String(), code
}

func serve(t *testing.T, b *apitest.Backend) kith {
	broker := localapi.NewBroker(16)
	broker.Publish(api.Event{Time: now, Type: api.EventPeerSeen, Peer: "carol", Message: "carol is on the network"})
	broker.Publish(api.Event{Time: now, Type: api.EventSecurity, Severity: api.SeverityError, Peer: "bob", Object: "peer/bob", Message: "bob came with \x1b[31manother key"})
	return kith{socket: apitest.Serve(t, b, broker)}
}

// TestMain: times are shown in UTC, set before any server's goroutine reads the clock. Where kith runs the program of kithd, that is this one.
func TestMain(m *testing.M) {
	const asKithd = "KITH_TEST_AS_KITHD"
	if os.Getenv(asKithd) != "" {
		kithd := config.Command("", config.Actions{Doctor: alone.Doctor, BugReport: alone.BugReport})
		if err := kithd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "kithd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv(asKithd, "1")
	time.Local = time.UTC
	os.Exit(m.Run())
}

// TestGolden holds what people and scripts see of every command, with its exit code. Each line runs in a world of its own.
func TestGolden(t *testing.T) {
	t.Setenv("TZ", "UTC")
	for name, commands := range map[string][]string{
		"status":   {"status", "status -o json", "status -o yaml"},
		"peers":    {"peers", "peers -o wide", "peers -o json", "peers -o yaml bob", "peers -o name", "peers carol bob", "peers mfzwi3d", "peers nobody"},
		"peer":     {"peer carol", "peer carol --cpu 2 --memory 4Gi --resource nvidia.com/gpu=1 --wait=false", "peer carol -o json", "peer nobody", "peer bob --withdraw", "peer carol --withdraw --cpu 1", "peer add 10.0.0.7:6450", "peer carol --code 06921", "confirm bob", "confirm carol --reject --terms", "confirm carol --code 069210"},
		"wake":     {"wake carol", "wake carol -o json", "wake bob", "wake nobody", "wake"},
		"unpeer":   {"unpeer bob", "unpeer nobody", "unpeer", "unpeer bob --all", "forget bob", "forget nobody"},
		"requests": {"requests", "requests -o wide", "requests -o json carol", "accept 7f3a", "accept 7f3a --yes", "accept bob --yes", "decline carol", "accept 7f3a --yes -o json", "accept nothing --yes", "accept dave --yes"},
		"share": {"share", "share -o json", "share 30%", "share 30", "share --cpu 2 --memory 4Gi --pods 20", "share --memory 0", "share off", "share on",
			"share --policy lab --to team=lab --pod-security restricted --auto-accept --cpu 1", "share --policy family --to bob", "share --internet=false", "share --same-name", "share -o yaml --policy family",
			"share --price cpu=0.02EUR,memory=0.5EUR", "share --price cpu=0 --dry-run", "share --price pods=1EUR", "share --price cpu=1", "share --price cpu=1EUR --price memory=1USD",
			"share --resource nvidia.com/gpu=1 --device-runtime-class nvidia", "share --gpu half", "share --resource widget=1", "share --bandwidth 20M", "share --bandwidth ingress=50M,egress=10M", "share --bandwidth fast", "share --policy lab --reoffer-from carol --margin 10%", "share --margin 10", "share --device-runtime-class No!"},
		"share-explain": {"share explain bob", "share explain carol", "share explain bob -o json", "share explain nobody", "share explain"},
		"offload":       {"offload", "offload -o wide", "offload -o json", "offload web --strategy remote --same-name --peers bob,carol", "offload web --budget 5/week", "offload web --budget 5/year", "unoffload shop", "unoffload web"},
		"contract":      {"contract", "contract list -o wide", "contract list -o json", "contract list nothing", "contract show bob-out", "contract show bob-out -o yaml", "contract show bob-out --document", "contract show x", "contract verify bob-out"},
		"receipt":       {"receipt", "receipt list bob -o wide", "receipt list nobody", "receipt list -o json", "receipt export abcdefgh12345678", "receipt export nobody", "receipt verify testdata/none.jsonl", "usage", "usage bob --by day", "usage --by namespace", "usage --by namespace -o csv", "usage bob --by namespace -o json", "usage --by namespace -o focus", "usage --by hour", "usage -o csv", "usage -o focus", "usage -o json", "usage --since yesterday", "usage nobody"},
		"top":           {"top", "top bob", "top --pods", "top bob -o json", "top --pods -o json bob", "top -o name", "top nobody"},
		"dry-run": {"unpeer bob --dry-run", "unpeer carol --dry-run", "unpeer --all --dry-run", "unpeer bob --dry-run -o json", "unpeer nobody --dry-run", "forget bob --dry-run", "forget nobody --dry-run",
			"share 30% --dry-run", "share 50% --dry-run", "share --dry-run", "share 101% --dry-run", "share --policy lab --to bob --cpu 1 --dry-run", "unoffload shop --dry-run", "unoffload shop --dry-run --force", "unoffload web --dry-run",
			"tether bob --dry-run", "tether nobody --dry-run", "undo", "undo --dry-run"},
		"why":         {"why", "why -n batch", "why -o name", "why shop/web -o name", "__complete why shop/", "__complete why -n shop w", "why shop/web", "why -n shop deployment/web", "why shop/guest", "why shop/far", "why shop/web -o json", "why web", "why shop/web -n batch", "why deploy/Web", "why cronjob/x -n shop", "why a b"},
		"guests":      {"guests", "guests -o json", "guests bob -o wide", "guests carol"},
		"volumes":     {"volumes", "volumes -o json", "volumes shop/data -o wide", "volumes carol"},
		"volume":      {"volume move shop/data --to home --no-wait", "volumes shop", "volume move shop/data --cancel", "volume move shop/data --to home", "volume move shop/none --to bob", "volume move data --to bob", "volume move shop/data", "volume move shop/data --to bob --rate fast", "volume fetch shop/data"},
		"dns-records": {"dns-records example.org", "dns-records example.org --format nsupdate", "dns-records -o json", "dns-records --format nsupdate", "dns-records a b", "dns-records --format bind"},
		"version":     {"version", "version --client", "--version", "kubeconfig", "kubeconfig --direct"},
		"doctor":      {"doctor", "doctor bob", "doctor bob -o json", "doctor carol -o yaml", "doctor nobody", "doctor --fix", "doctor --fix --yes", "doctor bob --fix --yes", "doctor --fix --yes -o json"},
		"usage": {"pears", "peers --colour", "peers -o xml", "peer", "peer a b", "peer ..", "peer carol --cpu two", "peer carol --cpu 50%", "peer carol --memory 4", "peer carol --cpu 0", "peer carol --cpu -1", "peer carol --pods 1.5", "peer carol --resource nvidia.com/gpu=0", "peer carol --resource gpu", "share 101%", "share 101", "share -5",
			"share half", "share --cpu 101%", "share --to bob", "share --policy A_B --cpu 1", "share --pod-security lax", "offload web --strategy all", "contract frobnicate", "peer carol --timeout soon"},
		"help": {"", "help exit-codes", "peer --help", "tether --help", "untether --help"},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for _, line := range commands {
				out, errs, code := serve(t, world()).run(strings.Fields(line)...)
				fmt.Fprintf(&got, "$ kith %s\n%s", line, out)
				if errs != "" {
					fmt.Fprintf(&got, "[standard error]\n%s", errs)
				}
				fmt.Fprintf(&got, "[exit %d]\n\n", code)
			}
			golden(t, name, got.String())
		})
	}
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got (go test ./cli -update writes it anew)\n%s", d)
	}
}

func TestMachineOutputIsWhatTheDaemonSent(t *testing.T) {
	b := world()
	k := serve(t, b)
	out, _, code := k.run("peers", "-o", "json")
	var peers []api.Peer
	if err := json.Unmarshal([]byte(out), &peers); err != nil || code != 0 {
		t.Fatalf("%d %v", code, err)
	}
	if peers[2].Name != b.Known[2].Name || !reflect.DeepEqual(peers[0].Tunnel, b.Known[0].Tunnel) {
		t.Errorf("%+v", peers)
	}
	for _, r := range out {
		if r != '\n' && (r < ' ' || r >= 0x7f) {
			t.Fatalf("JSON holds %q, which a terminal may obey", r)
		}
	}
	for _, command := range []string{"peers", "requests", "contract list", "share", "offload", "guests", "volumes", "top", "why"} {
		out, errs, code := serve(t, &apitest.Backend{}).run(append(strings.Fields(command), "-o", "json")...)
		if out != "[]\n" || errs != "" || code != 0 {
			t.Errorf("%s without any: %q %q %d, want []", command, out, errs, code)
		}
	}
}

func TestExitCodesTellFailuresApart(t *testing.T) {
	for name, tc := range map[string]struct {
		fail error
		want int
	}{
		"fine":        {nil, 0},
		"defect":      {errors.New("boom"), 1},
		"not ready":   {&api.Error{Code: api.CodeNotReady, Message: "the engine is starting"}, 1},
		"not found":   {api.NotFound("peer", "x", "kith peers"), 5},
		"declined":    {&api.Error{Code: api.CodeDeclined, Message: "carol declined"}, 6},
		"expired":     {&api.Error{Code: api.CodeExpired, Message: "nobody answered"}, 6},
		"too slow":    {context.DeadlineExceeded, 7},
		"not allowed": {api.Invalid("cpu", "99", "at most 4"), 2},
	} {
		b := world()
		b.AskAnswer = tc.fail
		if _, errs, code := serve(t, b).run("peer", "carol"); code != tc.want {
			t.Errorf("%s: exit %d, want %d: %s", name, code, tc.want, errs)
		}
	}
	_, errs, code := kith{socket: "/nonexistent/kith.sock"}.run("status")
	if code != 3 || !strings.Contains(errs, "kithd is not running") || !strings.Contains(errs, "systemctl start kithd") {
		t.Errorf("no daemon: %d %s", code, errs)
	}
	out, _, code := kith{socket: "/nonexistent/kith.sock"}.run("version")
	if code != 0 || out != "kith   1.2.3, commit c0ffee\nkithd  is not running\n" {
		t.Errorf("version without a daemon: %d %s", code, out)
	}
}

func TestTimeoutSaysThatTheRequestStands(t *testing.T) {
	b := world()
	b.AskBlock = make(chan struct{})
	_, errs, code := serve(t, b).run("peer", "carol", "--timeout", "500ms")
	if code != 7 || !strings.Contains(errs, "carol has not answered within 500ms") || !strings.Contains(errs, "code 402 817") ||
		!strings.Contains(errs, "`kith peer carol --withdraw` takes it back") || strings.Contains(errs, "unpeer") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestInterruptEndsTheWaiting(t *testing.T) {
	b := world()
	b.AskBlock = make(chan struct{})
	k := serve(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	k.ctx = ctx
	if _, errs, code := k.run("peer", "carol"); code != 130 || !strings.Contains(errs, "interrupted") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestUnpeerAsksOnATerminalWhenPodsMove(t *testing.T) {
	for _, tc := range []struct {
		answer   string
		terminal bool
		args     []string
		asks     bool
		code     int
		ended    bool
	}{
		{"y\n", true, []string{"unpeer", "bob"}, true, 0, true},
		{"n\n", true, []string{"unpeer", "bob"}, true, 1, false},
		{"", true, []string{"unpeer", "bob"}, true, 1, false},
		{"", true, []string{"unpeer", "bob", "--yes"}, false, 0, true},
		{"", true, []string{"unpeer", "carol"}, false, 0, true}, // no pods there
		{"", false, []string{"unpeer", "bob"}, false, 0, true},  // a script
		{"\n", true, []string{"forget", "bob"}, true, 1, false},
	} {
		b := world()
		k := serve(t, b)
		k.terminal, k.in = tc.terminal, strings.NewReader(tc.answer)
		_, errs, code := k.run(tc.args...)
		asks := strings.Contains(errs, "2 pods of this cluster at bob will move; 1 pod of bob here will end. Go on? [y/N]")
		calls := strings.Join(b.Called(), ",")
		ended := strings.Contains(calls, "Unpeer") || strings.Contains(calls, "ForgetPeer")
		if asks != tc.asks || code != tc.code || ended != tc.ended {
			t.Errorf("%v %q: asks %v, exit %d, calls %s: %s", tc.args, tc.answer, asks, code, calls, errs)
		}
	}
}

// TestUnpeerAllEndsWhatThereIs: not what was only asked of this cluster, or declined; and what does not end is named, with the rest done.
func TestUnpeerAllEndsWhatThereIs(t *testing.T) {
	b := world()
	b.Known = append(b.Known, api.Peer{Name: "dave", ID: "DAVE", Outgoing: api.StateRequested, Incoming: api.StateNone}, api.Peer{Name: "erin", ID: "ERIN", Outgoing: api.StateNone, Incoming: api.StateUnreachable})
	k := serve(t, b)
	out, errs, code := k.run("unpeer", "--all")
	var ended []string
	for _, call := range b.Called() {
		if name, ok := strings.CutPrefix(call, "Unpeer "); ok {
			ended = append(ended, name)
		}
	}
	slices.Sort(ended)
	if want := []string{"DAVE", "ERIN", bobID}; code != 0 || !slices.Equal(ended, want) || strings.Count(out, "has ended") != 3 {
		t.Errorf("%d %v, want %v: %s%s", code, ended, want, out, errs)
	}
	if out, errs, code := k.run("unpeer", "--all"); code != 0 || out != "" {
		t.Errorf("with nothing to end: %d %s%s", code, out, errs)
	}

	b = world()
	b.Known = append(b.Known, api.Peer{Name: "dave", ID: "DAVE", Outgoing: api.StateConnected})
	slow := kith{socket: apitest.Serve(t, endless{b, "DAVE"}, localapi.NewBroker(16))}
	if out, errs, code := slow.run("unpeer", "--all", "--timeout", "300ms"); code != 7 || !strings.Contains(out, "the peering with bob has ended") || !strings.Contains(errs, "1 peering did not end: dave: ") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	k = serve(t, world())
	k.terminal, k.in = true, strings.NewReader("n\n")
	if _, errs, code := k.run("unpeer", "--all"); code != 1 || !strings.Contains(errs, "2 pods of this cluster at bob will move; 1 pod of bob here will end. Go on? [y/N]") {
		t.Errorf("%d %s", code, errs)
	}
}

// endless has a peering that does not end.
type endless struct {
	*apitest.Backend
	peer string
}

func (b endless) Unpeer(ctx context.Context, name string, options api.EndOptions, report func(api.Progress)) (api.Peer, error) {
	if name == b.peer {
		<-ctx.Done()
		return api.Peer{}, ctx.Err()
	}
	return b.Backend.Unpeer(ctx, name, options, report)
}

func TestColoursOnlyOnATerminalThatWantsThem(t *testing.T) {
	k := serve(t, world())
	plain, _, _ := k.run("peers", "bob")
	k.terminal = true
	coloured, _, _ := k.run("peers", "bob")
	k.noColour = true
	wished, _, _ := k.run("peers", "bob")
	if !strings.Contains(coloured, "\x1b[32mconnected\x1b[0m") || strings.Contains(plain, "\x1b") || wished != plain {
		t.Errorf("plain %q\ncoloured %q\nNO_COLOR %q", plain, coloured, wished)
	}
	if stripped := strings.NewReplacer("\x1b[32m", "", "\x1b[1m", "", "\x1b[0m", "").Replace(coloured); stripped != plain {
		t.Errorf("colours move columns:\n%s\n%s", stripped, plain)
	}
}

func TestEvents(t *testing.T) {
	broker := localapi.NewBroker(16)
	k := kith{socket: apitest.Serve(t, world(), broker)}
	broker.Publish(api.Event{Time: now, Type: api.EventPeerSeen, Message: "one"})
	broker.Publish(api.Event{Time: now, Type: api.EventSecurity, Severity: api.SeverityError, Object: "peer/bob", Message: "bob came with \x1b[31manother key"})

	out, _, code := k.run("events")
	if want := "error    Security          bob came with \uFFFD[31manother key (peer/bob)\n"; code != 0 || !strings.HasSuffix(out, want) || strings.Count(out, "\n") != 2 {
		t.Errorf("%d %q", code, out)
	}
	out, _, _ = k.run("events", "-o", "json")
	var all []api.Event
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 || all[1].Seq != all[0].Seq+1 {
		t.Errorf("%v %s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	k.ctx = ctx
	time.AfterFunc(100*time.Millisecond, func() { broker.Publish(api.Event{Time: now, Message: "three"}) })
	time.AfterFunc(300*time.Millisecond, cancel)
	out, _, code = k.run("events", "-f", "-o", "json")
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 4 || !strings.Contains(lines[2], `"message":"three"`) {
		t.Errorf("%d %q", code, out)
	}
}

func TestCompletion(t *testing.T) {
	k := serve(t, world())
	for line, want := range map[string]string{
		"peer b":                    "bob\tout connected, in none",
		"peer bob ":                 "",
		"peers bob m":               "mallory\tout declined, in none", // not by its dangerous name
		"accept ":                   "7f3a\tcarol would get cpu 2 (asked 100000), memory 1Gi, pods 55, ephemeral-storage 20…\nbob-4y8d\tbob would get cpu 1 → 2, memory 2Gi, pods 40\ndave-1x1x\tdave would get nothing",
		"unoffload ":                "shop\t2 pods abroad",
		"contract show b":           "bob-out\tconsumer, connected",
		"offload web --peers bob,c": "bob,carol\tout none, in requested",
		"share --policy f":          "family\tcpu 6, nvidia.com/gpu 1",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		if strings.HasSuffix(line, " ") {
			args = append(args, "")
		}
		out, _, _ := k.run(args...)
		words, _, _ := strings.Cut(out, ":")
		if strings.TrimSuffix(words, "\n") != want && !(want == "" && strings.HasPrefix(out, ":")) {
			t.Errorf("%q: %q, want %q", line, out, want)
		}
	}
	if out, _, code := (kith{socket: "/nonexistent"}).run("__complete", "unpeer", ""); code != 0 || !strings.HasPrefix(out, ":") {
		t.Errorf("without a daemon: %d %q", code, out)
	}
}

func TestContractIsVerifiedWithoutADaemon(t *testing.T) {
	alice, err := identity.Load(filepath.Join(t.TempDir(), "alice"))
	if err != nil {
		t.Fatal(err)
	}
	bob, err := identity.Load(filepath.Join(t.TempDir(), "bob"))
	if err != nil {
		t.Fatal(err)
	}
	d := contract.Document{
		Version: contract.Version, ID: "a1b2c3d4e5f6g7h8", Revision: 1,
		Consumer:  contract.Party{ID: alice.ID(), Name: "alice", Key: alice.Public()},
		Provider:  contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		Terms:     contract.Terms{Resources: map[string]string{"cpu": "2"}, PodSecurity: contract.Baseline},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), Created: now,
	}
	s, err := contract.New(d)
	if err := errors.Join(err, s.SignAs(contract.Consumer, alice), s.SignAs(contract.Provider, bob)); err != nil {
		t.Fatal(err)
	}
	b := world()
	b.Signed = []api.Contract{{Name: "bob-out", ID: d.ID, Revision: 1, Document: s.Document, Signatures: verdict.Signatures(s)}}
	k := serve(t, b)
	shown, _, _ := k.run("contract", "show", "bob-out", "-o", "json")
	file := filepath.Join(t.TempDir(), "c.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(shown)
	lonely := kith{socket: "/nonexistent"}
	out, errs, code := lonely.run("contract", "verify", file)
	if code != 0 || !strings.Contains(out, "it is in force") || !strings.Contains(out, "gives alice ("+alice.ID().String()) {
		t.Errorf("file: %d %s%s", code, out, errs)
	}
	lonely.in = strings.NewReader(shown)
	if out, errs, code = lonely.run("contract", "verify", "-"); code != 0 {
		t.Errorf("standard input: %d %s%s", code, out, errs)
	}
	if out, errs, code = k.run("contract", "verify", "bob-out"); code != 0 {
		t.Errorf("by name: %d %s%s", code, out, errs)
	}
	write(strings.Replace(shown, `"revision": 1`, `"revision": 7`, 1))
	out, errs, code = lonely.run("contract", "verify", file, "-o", "json")
	var r api.VerifyResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || r.Valid {
		t.Errorf("forged: %d %v %s%s", code, err, out, errs)
	}
	for text, why := range map[string]string{"hello": "it has no fields", "kind: Pod": "it has no signed document", "{": "it is neither JSON nor YAML"} {
		write(text)
		if _, errs, code = lonely.run("contract", "verify", file); code != 2 || !strings.HasPrefix(errs, "kith: "+file+" is not a Kith contract: "+why+"\n") {
			t.Errorf("%s: %d %s", text, code, errs)
		}
	}
	if _, _, code = lonely.run("contract", "verify", "./none.json"); code != 5 {
		t.Errorf("no such file: exit %d", code)
	}
}

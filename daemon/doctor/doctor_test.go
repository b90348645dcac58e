package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/config"
)

func TestRunReportsInOrderAndStopsWhoHangs(t *testing.T) {
	first := make(chan struct{})
	say := func(name string) api.Finding { return api.Finding{Name: name, State: api.CheckOK} }
	var reported []string
	all := Run(t.Context(), func(f api.Finding) { reported = append(reported, f.Name) },
		func(_ context.Context, report func(api.Finding)) {
			report(say("1"))
			<-first // the second group runs meanwhile
			report(say("2"))
		},
		func(_ context.Context, report func(api.Finding)) {
			report(say("3"))
			close(first)
		},
		func(context.Context, func(api.Finding)) {},
	)
	if want := []string{"1", "2", "3"}; !slices.Equal(reported, want) || len(all) != 3 {
		t.Errorf("reported %v", reported)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	Run(ctx, func(api.Finding) {}, func(ctx context.Context, _ func(api.Finding)) { <-ctx.Done() }) // and ends
}

func TestSpaceIsJudgedByPartAndBytes(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		s    Space
		want api.CheckState
	}{
		"plenty":          {Space{Free: 100 * gib, Total: 500 * gib, Inodes: 0.9}, api.CheckOK},
		"small and empty": {Space{Free: 7 * gib, Total: 8 * gib, Inodes: 1}, api.CheckOK},
		"4 %":             {Space{Free: 20 * gib, Total: 500 * gib, Inodes: 0.9}, api.CheckWarning},
		"1 GiB":           {Space{Free: gib, Total: 8 * gib, Inodes: 0.9}, api.CheckWarning},
		"1 %":             {Space{Free: 5 * gib, Total: 500 * gib, Inodes: 0.9}, api.CheckFail},
		"100 MiB":         {Space{Free: gib / 10, Total: gib, Inodes: 0.9}, api.CheckFail},
		"few inodes":      {Space{Free: 100 * gib, Total: 500 * gib, Inodes: 0.02}, api.CheckWarning},
		"no inodes":       {Space{Free: 100 * gib, Total: 500 * gib, Inodes: 0.001}, api.CheckFail},
	} {
		if got, why := tc.s.Trouble(); got != tc.want || (why == "") != (got == api.CheckOK) {
			t.Errorf("%s: %s (%s), want %s", name, got, why, tc.want)
		}
	}
	s, err := SpaceAt(t.TempDir() + "/not/there/yet")
	if err != nil || s.Total == 0 || s.Free > s.Total {
		t.Errorf("%+v, %v", s, err)
	}
}

func machine() Machine {
	cfg := config.Default()
	cfg.Engine = config.EngineBuiltin
	cfg.WireGuardPort = cfg.PeerAPIPort // as Load completes it
	return Machine{Config: cfg}
}

func TestOverlapsNameTheOtherNetwork(t *testing.T) {
	m := machine()
	m.Guests = map[string][]netip.Prefix{"bob": {netip.MustParsePrefix("10.76.3.0/24")}}
	p := netip.MustParsePrefix
	for name, tc := range map[string]struct {
		others []taken
		want   map[string]string // name of the check that is not ok → "state: part of why"
	}{
		"home LAN":        {[]taken{{prefix: p("192.168.1.0/24"), by: "routed to wlan0"}}, nil},
		"VPN for all":     {[]taken{{prefix: p("0.0.0.0/0"), by: "routed to tun0"}}, nil},
		"VPN in the pods": {[]taken{{prefix: p("10.42.7.0/24"), by: "routed to tun0"}}, map[string]string{"pod-range": "warning: 10.42.7.0/24, routed to tun0"}},
		"VPN around":      {[]taken{{prefix: p("10.0.0.0/8"), by: "routed to tun0"}}, map[string]string{"pod-range": "warning: 10.0.0.0/8", "service-range": "warning: 10.0.0.0/8", "guest-range": "warning: 10.0.0.0/8"}},
		"DNS in services": {[]taken{{prefix: p("10.43.0.53/32"), by: "a DNS server", vital: true}}, map[string]string{"service-range": "fail: 10.43.0.53/32, a DNS server"}},
		"LAN of guests":   {[]taken{{prefix: p("10.76.0.0/16"), by: "routed to eth0"}}, map[string]string{"guest-range": "warning: 10.76.0.0/16, routed to eth0"}},
	} {
		found := m.overlaps(tc.others)
		if len(found) != 3 {
			t.Fatalf("%s: %+v", name, found)
		}
		for _, f := range found {
			got := ""
			if f.State != api.CheckOK {
				got = fmt.Sprintf("%s: %s", f.State, f.Why)
			}
			if want := tc.want[f.Name]; want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q, want %q", name, f.Name, got, want)
			}
		}
	}
	m.Engine = config.EngineKubeconfig // somebody else's cluster, whose ranges lie in its own devices
	if found := m.overlaps([]taken{{prefix: p("10.42.0.0/16"), by: "routed to flannel.1"}}); len(found) != 1 || found[0].Name != "guest-range" {
		t.Errorf("%+v", found)
	}
}

func TestWhoHoldsAPortDecides(t *testing.T) {
	alone, running := machine(), machine()
	running.PID = 100
	peers := running.listeners()[0]
	for name, tc := range map[string]struct {
		m       Machine
		d       listener
		holders []process
		want    api.CheckState
		says    string
	}{
		"kithd has it":          {running, peers, []process{{100, "kithd"}}, api.CheckOK, "kithd listens on TCP port 6450"},
		"nobody has it":         {running, peers, nil, api.CheckFail, "is not open"},
		"free before the start": {alone, peers, nil, api.CheckOK, "is free"},
		"somebody has it":       {alone, peers, []process{{7, "nginx"}}, api.CheckFail, "taken by nginx (process 7)"},
		"only root may see":     {alone, peers, []process{{}}, api.CheckWarning, "only root may see"},
		"kithd hangs":           {alone, peers, []process{{100, "kithd"}}, api.CheckWarning, "does not answer"},
		"the engine goes on":    {alone, alone.listeners()[2], []process{{8, "kith-k8s"}}, api.CheckOK, "kith-k8s listens"},
		"kithd and its engine":  {running, running.listeners()[2], []process{{100, "kithd"}, {8, "kith-k8s"}}, api.CheckOK, "kith-k8s listens"},
		"the engine sleeps":     {running, running.listeners()[2], []process{{100, "kithd"}}, api.CheckOK, "kithd keeps TCP port 6443"},
		"another Kubernetes":    {running, running.listeners()[2], []process{{9, "k3s-server"}}, api.CheckFail, "taken by k3s-server"},
		"another's front door":  {running, running.listeners()[3], []process{{9, "nginx"}}, api.CheckFail, "TCP port 6451, for kubectl"},
		"another's tunnel":      {running, running.listeners()[1], []process{{9, "wireguard-go"}}, api.CheckFail, "UDP port 6450"},
	} {
		f := tc.m.judge(tc.d, tc.holders)
		if f.State != tc.want || !strings.Contains(f.What, tc.says) || f.State == api.CheckFail && f.Do == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestEngineSaysWhichPartIsDown(t *testing.T) {
	look := func(e Engine) map[string]api.Finding {
		found := map[string]api.Finding{}
		e.Check(t.Context(), func(f api.Finding) { found[f.Name] = f })
		return found
	}
	e := Engine{
		Kind: "builtin", State: "ready", Log: "server.log",
		Address: netip.MustParseAddr("127.0.0.1"), ClusterDNS: netip.MustParseAddrPort("127.0.0.1:1"),
		Ready: func(context.Context) (string, error) { return "v1.36.3", nil },
		Node:  func(context.Context) (Node, error) { return Node{Name: "alice", Ready: true}, nil },
	}
	found := look(e)
	if _, said := found["user-namespaces"]; said {
		t.Error("where nobody tried, nothing is known of user namespaces")
	}
	for users, want := range map[string]api.CheckState{"yes": api.CheckOK, "in a user namespace: mount /proc: operation not permitted": api.CheckWarning} {
		tried := e
		tried.Node = func(context.Context) (Node, error) { return Node{Name: "alice", Ready: true, Users: users}, nil }
		if f := look(tried)["user-namespaces"]; f.State != want || want == api.CheckWarning && f.Why != users {
			t.Errorf("%s: %+v", users, f)
		}
	}
	for name, want := range map[string]api.CheckState{"api-server": api.CheckOK, "node": api.CheckOK, "node-address": api.CheckOK, "dns": api.CheckFail} {
		if found[name].State != want {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	e.Address = netip.MustParseAddr("192.0.2.99")
	e.Node = func(context.Context) (Node, error) { return Node{Name: "alice", Ready: true, Why: "disk is full"}, nil }
	if found = look(e); found["node-address"].State != api.CheckFail || found["node"].State != api.CheckWarning {
		t.Errorf("%+v", found)
	}
	e.Ready = func(context.Context) (string, error) { return "", errors.New("connection refused") }
	e.State, e.Why = "degraded", "its API server does not answer"
	if found = look(e); found["api-server"].State != api.CheckFail || !strings.Contains(found["api-server"].Why, "does not answer; connection refused") || found["node"].Name != "" {
		t.Errorf("%+v", found)
	}
	if found = look(Engine{Kind: "none"}); found["engine"].State != api.CheckOK || len(found) != 1 {
		t.Errorf("%+v", found)
	}
}

// TestMachineOfThisTest runs the checks of a machine for real.
func TestMachineOfThisTest(t *testing.T) {
	m := machine()
	m.DataDir = t.TempDir()
	for _, f := range Run(t.Context(), func(api.Finding) {}, m.Groups()...) {
		if f.Area == "" || f.Name == "" || f.What == "" || f.State == api.CheckFail && f.Why == "" && f.Do == "" {
			t.Errorf("says too little: %+v", f)
		}
	}
}

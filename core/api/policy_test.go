package api

import (
	"strings"
	"testing"
)

func TestAChangeOfAPolicyIsSaidOldAndNew(t *testing.T) {
	half := Policy{Name: "default", Amounts: ShareOf("50%"), PodSecurity: PodSecurityBaseline}
	with := func(change func(p *Policy)) Policy {
		p := half
		change(&p)
		return p
	}
	for _, c := range []struct {
		was, is Policy
		want    string
	}{
		{half, half, ""},
		{half, with(func(p *Policy) { p.Notes, p.Offered = []string{"a note"}, Resources{"cpu": "1"} }), ""},
		{half, with(func(p *Policy) { p.Amounts = ShareOf("0%") }), "50% → nothing"},
		{with(func(p *Policy) { p.Amounts = nil }), half, "nothing → 50%"},
		{with(func(p *Policy) { p.Amounts = ShareOf("0%") }), with(func(p *Policy) { p.Amounts = nil }), ""},
		{half, with(func(p *Policy) { p.Amounts = Resources{"cpu": "2", "memory": "50%"} }), "cpu 50% → 2, pods 50% → 0, ephemeral-storage 50% → 0"},
		{half, with(func(p *Policy) { p.Amounts = ShareOf("50%"); p.Amounts["nvidia.com/gpu"] = "50%" }), "nvidia.com/gpu 0 → 50%"},
		{with(func(p *Policy) { p.Amounts = ShareOf("50%"); p.Amounts["nvidia.com/gpu"] = "50%" }), with(func(p *Policy) { p.Amounts = ShareOf("0%") }),
			"cpu 50% → 0%, memory 50% → 0%, pods 50% → 0%, ephemeral-storage 50% → 0%, nvidia.com/gpu 50% → 0"},
		{half, with(func(p *Policy) { p.Amounts, p.Paused = ShareOf("25%"), true }), "50% → 25%, paused"},
		{with(func(p *Policy) { p.Paused, p.AutoAccept = true, true }), half, "not paused any more, requests are asked about"},
		{half, with(func(p *Policy) { p.Peers, p.PodSecurity = List[string]{"A"}, PodSecurityPrivileged }), "pod security baseline → privileged, for other peers"},
		{half, with(func(p *Policy) { p.NoInternet, p.Direct, p.SameName = true, true, true }),
			"guests may not use the way to the internet, guests may meet directly those at other providers, namespaces may keep their names"},
		{half, with(func(p *Policy) {
			p.Hours, p.TimeZone = List[Hours]{{Days: List[string]{"Sat", "Sun"}, From: "00:00", To: "24:00"}}, "Europe/Berlin"
		}),
			"hours always → Sat,Sun 00:00-24:00 Europe/Berlin"},
		{half, with(func(p *Policy) { p.TimeZone = "Europe/Berlin" }), ""}, // of no hours
		{half, with(func(p *Policy) {
			p.Reserve, p.MaxPerPeer, p.MaxPeers = Resources{"cpu": "2"}, Resources{"cpu": "10%"}, 3
		}),
			"reserve nothing → cpu 2, most per peer all → cpu 10%, most peers any → 3"},
		{half, with(func(p *Policy) { p.Margin = "10%" }), "margin on what is offered on none → 10%"},
		{half, with(func(p *Policy) { p.Bandwidth = Bandwidth{Ingress: "20M", Egress: "20M"} }), "bandwidth of guests any → 20M"},
		{with(func(p *Policy) { p.Bandwidth.Egress = "1M" }), with(func(p *Policy) { p.Bandwidth = Bandwidth{"2M", "1M"} }), "bandwidth of guests egress=1M → ingress=2M,egress=1M"},
		{half, with(func(p *Policy) { p.OnMains, p.BatteryAbove = true, 40 }), "only on mains, only with batteries above 0% → 40%"},
		{half, with(func(p *Policy) { p.IdleFor, p.NotMetered = "10m0s", true }), "only where the network is not metered, only when idle for no time → 10 minutes"},
		{with(func(p *Policy) { p.Cool = true }), half, "while this machine is hot, too"},
		{half, with(func(p *Policy) { p.Cool = true }), "only while this machine is cool"},
		{with(func(p *Policy) { p.IdleFor, p.NotMetered = "1h", true }), half, "where the network is metered, too, only when idle for 1 hour → no time"},
	} {
		if got := c.is.Since(c.was); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if undone := c.was.Restore().Apply(c.is); undone.Since(c.was) != "" {
			t.Errorf("%s: taken back it is %+v, it was %+v", c.want, undone, c.was)
		}
	}
}

func TestQuantitiesAreReadAsNumbers(t *testing.T) {
	for amount, want := range map[string]string{"0m": "0", "300m": "0.3", "8": "8", "100": "100", "0": "0", "1500m": "1.5", "1": "1", "1m": "1m", "no": "no"} {
		if got := Decimal(amount); got != want {
			t.Errorf("%s is %s, want %s", amount, got, want)
		}
	}
}

func TestHoursAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"09:00-17:00":         "09:00-17:00",
		"Mon-Fri 18:00-08:00": "Mon-Fri 18:00-08:00",
		"mon,tue 09:00-17:00; sat, sun 00:00-24:00 ;": "Mon,Tue 09:00-17:00; Sat,Sun 00:00-24:00",
		"Fri-Mon 09:00-17:00":                         "Fri-Mon 09:00-17:00",
		"Mon,Wed-Fri,Mon 09:00-17:00":                 "Mon,Wed-Fri 09:00-17:00",
		"Mon-Mon 09:00-17:00":                         "Mon 09:00-17:00",
	} {
		hours, err := ParseHours("hours", text)
		if got := HoursWords(hours, ""); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
		if again, err := ParseHours("hours", want); err != nil || HoursWords(again, "") != want {
			t.Errorf("%q is read as %q, %v", want, HoursWords(again, ""), err)
		}
	}
	for _, wrong := range []string{"Mon", "09:00", "Moon 09:00-17:00", "9:00-17:00", "09:00-25:00", "24:00-08:00", "09:00-09:00", "Mon- 09:00-17:00", "09:00-17:00 Mon", "-", "Mon 09:00-17:00 Tue",
		strings.Repeat("09:00-17:00;", maxHours+1)} {
		if hours, err := ParseHours("hours", wrong); err == nil {
			t.Errorf("%q is read as %q", wrong, HoursWords(hours, ""))
		}
	}
}

func TestWhatAPolicyCannotSay(t *testing.T) {
	for _, p := range []Policy{
		{TimeZone: "../etc"}, {TimeZone: "Europe Berlin"}, {MaxPeers: -1}, {MaxPeers: 1001}, {BatteryAbove: 100}, {BatteryAbove: -1}, {IdleFor: "59s"}, {IdleFor: "25h"}, {IdleFor: "often"}, {IdleFor: "-1h"}, {Reserve: Resources{"cpu": "50% of free"}}, {Reserve: Resources{GPU: "1"}},
		{Reserve: Resources{"cpu": "1e3"}}, {MaxPerPeer: Resources{"a b": "1"}}, {MaxPerPeer: Resources{"example.com/a": "500m"}}, {Amounts: Resources{"cpu": "2 of free"}},
		{Amounts: Resources{"cpu": "101% of free"}}, {Amounts: Resources{"cpu": "% of free"}}, {Hours: List[Hours]{{From: "09:00"}}}, {Hours: List[Hours]{{Days: List[string]{"Moon"}, From: "09:00", To: "10:00"}}},
		{Bandwidth: Bandwidth{Egress: "fast"}}, {Bandwidth: Bandwidth{Ingress: "99k"}}, {Margin: "10"}, {Margin: "1000%"},
	} {
		if err := p.Check(); err == nil {
			t.Errorf("%+v can be said", p)
		}
	}
	if err := (Policy{Amounts: ShareOf("50% of free"), Reserve: Resources{"cpu": "20%", "example.com/a": "1"}, MaxPerPeer: ShareOf("10% of free"), MaxPeers: 1000, BatteryAbove: 99, IdleFor: "24h", NotMetered: true, TimeZone: "America/Argentina/Buenos_Aires"}).Check(); err != nil {
		t.Error(err)
	}
}

func TestParseWake(t *testing.T) {
	for s, want := range map[string]int32{"": 0, "0": 0, "3": 3, "3/day": 3, "24/day": 24, "25/day": -1, "-1": -1, "3/week": -1, "three": -1, "3 /day": -1, "99999999999": -1} {
		got, err := ParseWake(s)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
		if back, err := ParseWake(WakeWords(got)); got > 0 && (err != nil || back != got) {
			t.Errorf("%q: read back as %d, %v", s, back, err)
		}
	}
}

package api

import "testing"

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

package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

// pages gives an address as the page would.
type pages struct{ options []api.WebOptions }

func (p *pages) Open(_ localapi.Visitor, options api.WebOptions) (api.Web, error) {
	p.options = append(p.options, options)
	return api.Web{URL: "http://127.0.0.1:4711/#ticket", Expires: now.Add(time.Minute), ReadOnly: options.ReadOnly}, nil
}

func TestThePagesAddress(t *testing.T) {
	page := &pages{}
	k := kith{socket: apitest.ServeWith(t, world(), localapi.NewBroker(1), page)}
	for _, args := range [][]string{{"web", "--no-open"}, {"web", "--no-open", "--read-only"}} {
		if out, errs, code := k.run(args...); out != "http://127.0.0.1:4711/#ticket\n" || errs != "" || code != 0 {
			t.Errorf("%q: %d %q %q", args, code, out, errs)
		}
	}
	out, _, code := k.run("web", "-o", "json")
	var got api.Web
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.URL != "http://127.0.0.1:4711/#ticket" || !got.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("%v %d %s", err, code, out)
	}
	if len(page.options) != 3 || page.options[0].ReadOnly || !page.options[1].ReadOnly {
		t.Errorf("%+v", page.options)
	}
	// No browser is started for root, nor where there is no screen: the address is what there is.
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	if out, errs, code := k.run("web"); out != "http://127.0.0.1:4711/#ticket\n" || !strings.Contains(errs, "no browser was started") || code != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

package localapi_test

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/test/apitest"
)

// TestFixTakesNamesOfFindingsAndNothingElse: what is done about one is kithd's to know.
func TestFixTakesNamesOfFindingsAndNothingElse(t *testing.T) {
	b := &apitest.Backend{Findings: []api.Finding{
		{Area: api.AreaKernel, Name: "inotify", State: api.CheckWarning, What: "few", Fix: []string{"sysctl -w fs.inotify.max_user_instances=1024"}},
		{Area: api.AreaDisk, Name: "space", State: api.CheckFail, What: "full"},
	}}
	c, socket := serve(t, b)
	var steps []string
	fixed, err := c.FixFindings(t.Context(), api.DoctorFix{Findings: []string{"inotify", "space"}}, func(p api.Progress) { steps = append(steps, p.Message) })
	if err != nil || len(fixed) != 1 || !fixed[0].Mended() || fixed[0].Finding.Name != "inotify" || !slices.Equal(steps, []string{"mending inotify"}) {
		t.Errorf("%v %+v %q", err, fixed, steps)
	}
	calls := len(b.Called())
	for _, body := range []string{
		``, `{}`, `{"findings":[]}`, `{"findings":["sysctl -w a=b"]}`, `{"findings":["$(reboot)"]}`, `{"findings":["../tun"]}`, `{"findings":[""]}`,
		`{"findings":["tun"],"commands":["reboot"]}`, `{"findings":["tun"],"shown":["` + strings.Repeat(`x","`, 16*api.MaxFixes) + `"]}`, `{"findings":[{"name":"tun","fix":["reboot"]}]}`,
		`{"findings":["` + strings.Repeat("a", 65) + `"]}`, `{"findings":[` + strings.Repeat(`"tun",`, api.MaxFixes) + `"tun"]}`,
	} {
		if code, answer := curl(t, socket, "POST", api.PathDoctorFix, body); code != http.StatusBadRequest {
			t.Errorf("%.80s: %d %s", body, code, answer)
		}
	}
	if got := b.Called()[calls:]; len(got) > 0 {
		t.Errorf("reached the backend: %q", got)
	}
}

func TestABugReportIsStreamedOrAnError(t *testing.T) {
	b := &apitest.Backend{Report: bytes.Repeat([]byte("report"), 100000)}
	c, _ := serve(t, b)
	if got, err := c.BugReport(t.Context()); err != nil || !bytes.Equal(got, b.Report) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b.Set(func() { b.Fail = &api.Error{Code: api.CodeNotReady, Message: "not now"} })
	if _, err := c.BugReport(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeNotReady}) {
		t.Error(err)
	}
}

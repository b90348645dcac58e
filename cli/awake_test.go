package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/apitest"
)

func TestAwakeGolden(t *testing.T) {
	t.Setenv("TZ", "UTC")
	like := func(guests int, is *api.Awake) func() *apitest.Backend {
		return func() *apitest.Backend {
			b := world()
			b.State.Awake, b.State.Counts.Guests = is, guests
			return b
		}
	}
	kept := &api.Awake{Kept: true, Since: now, Until: now.Add(90 * time.Minute)}
	guests := &api.Awake{Kept: true, Since: now, Until: now.Add(23 * time.Hour), UntilGuestsEnd: true}
	var got strings.Builder
	for _, scene := range []struct {
		title    string
		world    func() *apitest.Backend
		commands []string
	}{
		{"where guests run", like(3, &api.Awake{}), []string{"awake", "awake --until-guests-end", "awake --for 2h", "awake --for 2h --until-guests-end -o json", "awake --off", "awake -o json",
			"awake --for 30s", "awake --for 25h", "awake --for soon", "awake --off --for 1h", "awake now"}},
		{"where none does", like(0, &api.Awake{}), []string{"awake", "awake --until-guests-end"}},
		{"for a time", like(0, kept), []string{"awake", "status"}},
		{"for its guests", like(2, guests), []string{"awake"}},
		{"without logind", like(2, nil), []string{"awake", "awake --until-guests-end", "awake --off"}},
	} {
		fmt.Fprintf(&got, "# %s\n", scene.title)
		for _, line := range scene.commands {
			out, errs, code := serve(t, scene.world()).run(strings.Fields(line)...)
			fmt.Fprintf(&got, "$ kith %s\n%s", line, out)
			if errs != "" {
				fmt.Fprintf(&got, "[standard error]\n%s", errs)
			}
			fmt.Fprintf(&got, "[exit %d]\n\n", code)
		}
	}
	golden(t, "awake", got.String())
}

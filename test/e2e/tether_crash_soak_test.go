//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// The steps of a switch, as core/mode has them.
var (
	wayIn  = []string{"asking", "stopping", "draining", "joining", "leading"}
	wayOut = []string{"leaving", "ending", "starting", "returning"}
)

// crash is something that ends in the middle of a switch.
type crash struct {
	what string
	at   func(*crashes) *lab.Laptop
	do   func(*testing.T, *lab.Laptop)
}

// crashes is a laptop that is tethered and untethered again and again.
type crashes struct {
	alice, bob *lab.Laptop
	journal    string
}

func laptopOf(c *crashes) *lab.Laptop  { return c.alice }
func companyOf(c *crashes) *lab.Laptop { return c.bob }

func crashKinds() []crash {
	kithd := func(t *testing.T, p *lab.Laptop) {
		if err := p.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	engine := func(t *testing.T, p *lab.Laptop) {
		if _, _, err := p.Exec(t.Context(), "sh", "-c", "kill -9 $(pidof -s kith-k8s)"); err != nil {
			t.Fatal(err)
		}
	}
	power := func(t *testing.T, p *lab.Laptop) {
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return []crash{
		{"kithd of the laptop killed", laptopOf, kithd}, {"the laptop's engine killed", laptopOf, engine}, {"the laptop loses power", laptopOf, power},
		{"kithd of the company killed", companyOf, kithd}, {"the company's engine killed", companyOf, engine}, {"the company loses power", companyOf, power},
	}
}

// step is where the switch is, by the journal; "" while there is none.
func (c *crashes) step() string {
	var j struct{ Step string }
	text, err := os.ReadFile(c.journal)
	if err != nil || json.Unmarshal(text, &j) != nil {
		return ""
	}
	return j.Step
}

// reached waits until the journal names the step, or one behind it of those in the way, and gives which. Some steps last a millisecond.
func (c *crashes) reached(step string, way []string, done <-chan struct{}) string {
	behind := way[slices.Index(way, step):]
	for {
		if now := c.step(); slices.Contains(behind, now) {
			return now
		}
		select {
		case <-done:
			return "the end"
		default:
			time.Sleep(200 * time.Microsecond)
		}
	}
}

// Informers that lost their API server again and again wait a minute or two before they look again (client-go's back-off).
const afterManyKills = 4 * time.Minute

// settled waits until the switch is over on both sides, whichever way, and checks that all agrees with the mode. It gives that.
func (c *crashes) settled(t *testing.T) (mode api.Mode) {
	t.Helper()
	for _, p := range []*lab.Laptop{c.alice, c.bob} {
		eventually(t, 2*time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, 3*time.Minute, "the switch is over", func() string {
		s := modeOf(t, c.alice)
		if mode = s.Mode; mode != api.Autonomous && mode != api.Tethered || s.Engine.State != api.EngineReady {
			return fmt.Sprintf("%s %+v %+v", s.Mode, s.Tether, s.Engine)
		}
		return ""
	})
	on, _ := deciding(t, c.alice)
	if on != (mode == api.Autonomous) {
		t.Errorf("%s, and the engine decides: %t", mode, on)
	}
	if mode == api.Autonomous {
		untetheredWithin(t, c.alice, c.bob, afterManyKills)
		eventually(t, 20*time.Second, "kubectl is at home", func() string {
			if out, err := front(t, c.alice, "get", "nodes", "-o", "name"); err != nil || !strings.Contains(out, "node/alice\n") {
				return fmt.Sprintf("%v %q", err, out)
			}
			return ""
		})
		return mode
	}
	eventually(t, afterManyKills, "the company has the node", func() string {
		return kubectlUntil(t, c.bob, "True", "get", "node", "kith-alice", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	})
	eventually(t, afterManyKills, "kubectl is at the company", func() string {
		if out, err := front(t, c.alice, "-n", "team", "get", "deployments", "-o", "name"); err != nil || !strings.Contains(out, "hers") {
			return fmt.Sprintf("%v %q", err, out)
		}
		return ""
	})
	return mode
}

// be brings the laptop into a mode in peace.
func (c *crashes) be(t *testing.T, mode api.Mode) {
	t.Helper()
	if modeOf(t, c.alice).Mode == mode {
		return
	}
	if mode == api.Tethered {
		kith(t, c.alice, "tether", "bob", "--yes")
	} else {
		kith(t, c.alice, "untether", "--yes")
	}
	if is := c.settled(t); is != mode {
		t.Fatalf("it is %s, and should be %s", is, mode)
	}
}

// TestASwitchSurvivesWhatEndsInItsMiddle: kithd, the engine, the power of either side end at each step of each direction. What was begun is
// finished or taken back by itself, and both sides agree.
func TestASwitchSurvivesWhatEndsInItsMiddle(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	c := &crashes{alice: l.Laptop("alice"), bob: l.Laptop("bob")}
	c.journal = c.alice.Path("/var/lib/kith/mode.json")
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, c.bob) })
	apply(t, c.bob, fmt.Sprintf(laptopsOfTheCompany, true))
	tethered(t, c.alice, c.bob, "--local-workloads", "drain")
	frontApply(t, c.alice, ofTheTeam("hers", "kith-alice", 1))
	waitReady(t, c.bob, 1, "-n", "team", "-l", "app=hers")
	for _, kind := range crashKinds() {
		for _, way := range []struct {
			from, to api.Mode
			steps    []string
			command  []string
		}{
			{api.Autonomous, api.Tethered, wayIn, []string{"tether", "bob", "--yes", "--local-workloads", "drain"}},
			{api.Tethered, api.Autonomous, wayOut, []string{"untether", "--yes", "--timeout", "30s"}},
		} {
			for _, step := range way.steps {
				t.Run(fmt.Sprintf("%s at %s", kind.what, step), func(t *testing.T) {
					c.journal = c.alice.Path("/var/lib/kith/mode.json") // another boot has another path
					c.be(t, way.from)
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, _ = c.alice.Kith(t.Context(), way.command...)
					}()
					was := c.reached(step, way.steps, done)
					kind.do(t, kind.at(c))
					<-done
					began := time.Now()
					mode := c.settled(t)
					t.Logf("%s at %s: %s after %s", kind.what, was, mode, time.Since(began).Round(100*time.Millisecond))
				})
			}
		}
	}
}

// TestACompanyWithAClusterOfItsOwnRunsALaptop is TestACompanyRunsALaptop with a cluster that somebody else runs.
func TestACompanyWithAClusterOfItsOwnRunsALaptop(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	attach(t, l.Laptop("bob"))
	companyRuns(t, l)
}

// TestTwoMinutesWithoutTheCompany: what it runs on the laptop goes on, without a restart, and all is as before when it is back.
func TestTwoMinutesWithoutTheCompany(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, bob) })
	apply(t, bob, fmt.Sprintf(laptopsOfTheCompany, false))
	apply(t, alice, mine)
	waitReady(t, alice, 2, "-n", "mine", "-l", "app=db")
	lives := livesIn(t, alice, "mine")
	tethered(t, alice, bob)
	frontApply(t, alice, ofTheTeam("hers", "kith-alice", 2)+"---"+ofTheTeam("spread", "", 4))
	waitReady(t, bob, 2, "-n", "team", "-l", "app=hers")
	waitReady(t, bob, 4, "-n", "team", "-l", "app=spread")
	had := livesIn(t, bob, "team")
	cutFromTheCompany(t, l, lives, 2*time.Minute)
	if now := livesIn(t, bob, "team"); now != had {
		t.Errorf("the company's pods are %s, were %s", now, had)
	}
}

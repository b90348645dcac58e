package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

// peer stands for one that says what the test has it say.
type peer struct {
	t      *testing.T
	opened atomic.Int32
	out    *io.PipeWriter
	refuse atomic.Pointer[error]
	away   atomic.Bool
}

func (p *peer) open(ctx context.Context) (io.ReadCloser, error) {
	p.opened.Add(1)
	if err := p.refuse.Load(); err != nil {
		return nil, *err
	}
	body, out := io.Pipe()
	p.out = out
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	return body, nil
}

// say writes lines and waits until all of them were read.
func (p *peer) say(lines ...string) {
	p.t.Helper()
	synctest.Wait()
	for _, line := range lines {
		if _, err := io.WriteString(p.out, line+"\n"); err != nil {
			p.t.Fatalf("the view does not read on: %v", err)
		}
	}
	synctest.Wait()
}

const synced = `{"kind":"Synced"}`

func twinLine(name, home string) string {
	return fmt.Sprintf(`{"kind":"Namespace","object":{"metadata":{"name":%q,"labels":{"kith.dev/home-namespace":%q}}}}`, name, home)
}

func line(kind, namespace, name string, gone bool) string {
	return fmt.Sprintf(`{"kind":%q,"gone":%t,"object":{"metadata":{"namespace":%q,"name":%q,"uid":"u","resourceVersion":"1"}}}`, kind, gone, namespace, name)
}

// pass lets time go by, and whatever comes of that happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// follow runs a view in a bubble of its own, and gives what it tells of pods and twins.
func follow(t *testing.T, story func(t *testing.T, p *peer, v *View, told func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{t: t}
		v := NewView(ViewConfig{Open: p.open, Log: slog.New(slog.DiscardHandler)})
		v.While(func() bool { return !p.away.Load() })
		var heard []string
		v.Pods.OnChange(func(was, is *corev1.Pod) {
			if is == nil {
				heard = append(heard, "-"+was.Namespace+"/"+was.Name)
				return
			}
			heard = append(heard, "+"+is.Namespace+"/"+is.Name)
		})
		v.OnTwin(func(was, is *Twin) {
			if is == nil {
				heard = append(heard, "-"+was.Name)
				return
			}
			heard = append(heard, "+"+is.Name)
		})
		v.OnSynced(func() { heard = append(heard, "synced") })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- v.Run(ctx) }()
		synctest.Wait()
		story(t, p, v, func() []string { now := heard; heard = nil; return now })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsNotToldAgainIsGone(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		p.say(twinLine("shop-x", "shop"), line("Pod", "shop-x", "web", false), line("Pod", "shop-x", "db", false))
		if v.HasSynced() {
			t.Error("fresh before everything was told")
		}
		p.say(synced)
		if !v.HasSynced() {
			t.Error("not fresh when everything was told")
		}
		told()
		p.out.Close() // the peer's daemon starts again
		pass(time.Second)
		p.say(twinLine("shop-x", "shop"), line("Pod", "shop-x", "web", false))
		if got := told(); !slices.Equal(got, []string{"+shop-x/web"}) {
			t.Errorf("meanwhile: %q", got)
		}
		p.say(synced)
		if got := told(); !slices.Equal(got, []string{"-shop-x/db", "synced"}) {
			t.Errorf("then: %q", got)
		}
		p.out.Close()
		pass(time.Second)
		p.say(synced)
		if got := told(); !slices.Equal(got, []string{"-shop-x/web", "-shop-x", "synced"}) {
			t.Errorf("in the end: %q", got)
		}
	})
}

func TestWithANamespaceEverythingInItGoes(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		p.say(twinLine("shop-x", "shop"), twinLine("market-x", "market"), line("Pod", "shop-x", "web", false), line("Pod", "market-x", "web", false),
			line("Secret", "shop-x", "key", false), line("OffloadedPod", "shop-x", "web", false), synced)
		told()
		p.say(strings.Replace(twinLine("shop-x", ""), `"kind":"Namespace"`, `"kind":"Namespace","gone":true`, 1))
		if got := told(); !slices.Equal(got, []string{"-shop-x/web", "-shop-x"}) {
			t.Errorf("told: %q", got)
		}
		if v.Metadata["Secret"].Has("shop-x") || v.OffloadedPods.Has("shop-x") || v.Pods.Get("market-x", "web") == nil {
			t.Error("the wrong ones are left")
		}
	})
}

func TestAPeerThatIsAwayIsNotAskedAndAskedAtOnceWhenItIsBack(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		p.say(twinLine("shop-x", "shop"), line("Pod", "shop-x", "web", false), synced)
		p.away.Store(true)
		v.Look()
		pass(time.Hour)
		if p.opened.Load() != 1 || !v.HasSynced() || v.Pods.Get("shop-x", "web") == nil {
			t.Errorf("opened %d times, fresh %t", p.opened.Load(), v.HasSynced())
		}
		p.away.Store(false)
		v.Look()
		synctest.Wait()
		if p.opened.Load() != 2 || v.HasSynced() {
			t.Fatalf("opened %d times, fresh %t", p.opened.Load(), v.HasSynced())
		}
		p.say(twinLine("shop-x", "shop"), line("Pod", "shop-x", "web", false), synced)
		if !v.HasSynced() {
			t.Error("not fresh")
		}
	})
}

func TestARefusalIsTriedAgainWithGrowingDelays(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		no := errors.New("403 Forbidden")
		p.refuse.Store(&no)
		p.out.Close()
		pass(time.Minute)
		if p.opened.Load() < 6 || p.opened.Load() > 25 {
			t.Errorf("asked %d times in a minute", p.opened.Load())
		}
		p.refuse.Store(nil)
		for before := p.opened.Load(); p.opened.Load() == before; {
			pass(100 * time.Millisecond)
		}
		p.say(synced)
		if !v.HasSynced() {
			t.Error("not fresh")
		}
	})
}

func TestAPeerThatSaysNothingIsNotWaitedForForEver(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		p.say(twinLine("shop-x", "shop"))
		pass(patience + time.Second)
		if p.opened.Load() != 2 {
			t.Errorf("opened %d times", p.opened.Load())
		}
		p.say(twinLine("shop-x", "shop"), synced)
		pass(time.Hour) // nothing changes there
		if p.opened.Load() != 2 || !v.HasSynced() {
			t.Errorf("opened %d times", p.opened.Load())
		}
	})
}

// TestHostileLines: whatever a peer says, it costs what it may, and the next stream begins afresh.
func TestHostileLines(t *testing.T) {
	for name, text := range map[string]string{
		"a line without end":        `{"kind":"Pod","object":{"metadata":{"name":"` + strings.Repeat("x", 5<<20),
		"no JSON":                   "what?\n",
		"half of an object":         `{"kind":"Pod","object":{"metadata":` + "\n",
		"a pod without a name":      `{"kind":"Pod","object":{"metadata":[]}}` + "\n",
		"a namespace without one":   `{"kind":"Namespace","object":{"metadata":{"labels":{"kith.dev/home-namespace":"shop"}}}}` + "\n",
		"a namespace for nothing":   `{"kind":"Namespace","object":{"metadata":{"name":"shop-x"}}}` + "\n",
		"a name that is an object":  `{"kind":{"kind":"Pod"},"object":{}}` + "\n",
		"nested as deep as one can": `{"kind":"Pod","object":` + strings.Repeat(`{"a":`, 1<<20) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
				if _, err := io.WriteString(p.out, text); err == nil && !strings.HasSuffix(text, "\n") {
					t.Error("it was read to its end")
				}
				pass(time.Second)
				if p.opened.Load() != 2 {
					t.Fatalf("opened %d times", p.opened.Load())
				}
				p.say(line("Pod", "shop-x", "web", false), synced)
				if !v.HasSynced() || v.Pods.Get("shop-x", "web") == nil {
					t.Error("it does not go on")
				}
			})
		})
	}
}

func TestOneObjectThatCannotBeReadIsPassedOver(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		p.say(line("Pod", "shop-x", "bad", false), synced)
		told()
		p.say(`{"kind":"Pod","object":{"metadata":{"namespace":"shop-x","name":"bad","resourceVersion":"2"},"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-9999999"}}}]}}}`,
			line("Pod", "shop-x", "good", false), `{"kind":"Teapot","object":{"metadata":{"name":"of a later version"}}}`)
		if got := told(); !slices.Equal(got, []string{"-shop-x/bad", "+shop-x/good"}) {
			t.Errorf("told: %q", got)
		}
		if p.opened.Load() != 1 {
			t.Error("the others had to be told again")
		}
	})
}

// TestLinesAreReadAsTheyAreWritten: whole objects go and come.
func TestLinesAreReadAsTheyAreWritten(t *testing.T) {
	follow(t, func(t *testing.T, p *peer, v *View, told func() []string) {
		o := &v1alpha1.OffloadedPod{Spec: v1alpha1.OffloadedPodSpec{HomeNamespace: "shop", HomeUID: "u"}}
		o.Namespace, o.Name = "shop-x", "web"
		o.Annotations = map[string]string{"long": strings.Repeat("é\n\"", 40<<10)}
		text, err := json.Marshal(Line{Kind: "OffloadedPod", Object: o})
		if err != nil {
			t.Fatal(err)
		}
		p.say(string(text), synced)
		if got := v.OffloadedPods.Get("shop-x", "web"); got == nil || got.Annotations["long"] != o.Annotations["long"] || got.Spec.HomeNamespace != "shop" {
			t.Errorf("got %.200v", got)
		}
	})
}

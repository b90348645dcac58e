//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

// Software that people run, with manifests as they write them (testdata/apps), on images made of Debian's packages
// (scripts/apps.sh).

// newAppsWorld is a world whose laptops have these images, and whose bob gives alice more than usual.
func newAppsWorld(t *testing.T) *world {
	t.Helper()
	return newAppsWorldOf(t, lab.Options{Laptops: 2}, "images.tar")
}

// appsAsk is what alice asks for there.
var appsAsk = []string{"--cpu", "800m", "--memory", "4Gi", "--pods", "30", "--ephemeral-storage", "16Gi"}

// newAppsWorldOf has laptops with the images of an archive.
func newAppsWorldOf(t *testing.T, options lab.Options, archive string) *world {
	t.Helper()
	archive, err := filepath.Abs(filepath.Join("..", "..", "build", "apps", archive))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(archive); err != nil {
		t.Skip("the images of Redis, PostgreSQL, nginx and Prometheus are missing: scripts/apps.sh makes them")
	}
	options.Images = []string{archive}
	l := laptops(t, options)
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	befriend(t, w.alice, w.bob, appsAsk...)
	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop")
	return w
}

// minutes is how long a story goes on: so many, or KITH_MINUTES.
func minutes(n int) time.Duration {
	if m, err := strconv.Atoi(os.Getenv("KITH_MINUTES")); err == nil && m > 0 {
		n = m
	}
	return time.Duration(n) * time.Minute
}

// app applies a file of testdata/apps, in which words were replaced by pairs.
func (w *world) app(file string, replace ...string) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "apps", file))
	if err != nil {
		w.t.Fatal(err)
	}
	apply(w.t, w.alice, strings.NewReplacer(replace...).Replace(string(text)))
}

// in runs a command in a pod of shop.
func (w *world) in(pod string, command ...string) (string, error) {
	out, err := w.alice.Kubectl(w.t.Context(), append([]string{"-n", "shop", "exec", pod, "--"}, command...)...)
	return strings.TrimSpace(out), err
}

// appReady tells what is not right unless n pods of an application are Ready.
func (w *world) appReady(app string, n int) string {
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": app})
	if err != nil || len(list) != n {
		return fmt.Sprintf("%d pods, %v", len(list), err)
	}
	for i := range list {
		if p := &list[i]; !podReady(p) || p.DeletionTimestamp != nil {
			return fmt.Sprintf("%s on %q is not Ready: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
	}
	return ""
}

// restarts are the containers of shop that are not those they were: what no fault of Kith may cause.
func (w *world) restarts(app string) string {
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": app})
	if err != nil {
		return err.Error()
	}
	var all []string
	for i := range list {
		for _, c := range list[i].Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %s %d", list[i].UID, c.Name, c.RestartCount))
		}
	}
	return strings.Join(all, ", ")
}

// finished waits until a pod of shop has ended well and gives what it said.
func (w *world) finished(pod string, within time.Duration) string {
	w.t.Helper()
	phase := corev1.PodPending
	eventually(w.t, within, pod+" has ended", func() string {
		list, err := w.pods(w.alice, "shop", client.MatchingFields{"metadata.name": pod})
		if err != nil || len(list) != 1 {
			return fmt.Sprintf("%d pods, %v", len(list), err)
		}
		if phase = list[0].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return string(phase)
		}
		return ""
	})
	out := strings.TrimSpace(kubectl(w.t, w.alice, "-n", "shop", "logs", pod))
	if phase != corev1.PodSucceeded {
		w.t.Fatalf("%s: %s\n%s", pod, phase, out)
	}
	kubectl(w.t, w.alice, "-n", "shop", "delete", "pod", pod, "--wait=false")
	return out
}

// reported is finished for a report in JSON.
func (w *world) reported(pod string, within time.Duration, into any) {
	w.t.Helper()
	out := w.finished(pod, within)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		w.t.Fatalf("%s: %v\n%s", pod, err, out)
	}
	w.t.Logf("%s: %s", pod, out)
}

// killBoth kills kithd of both laptops once a minute, at the same moment and one after the other by turns, until the time is over.
func (w *world) killBoth(lasts time.Duration) {
	w.t.Helper()
	end := time.Now().Add(lasts)
	time.Sleep(20 * time.Second)
	for i := 0; time.Until(end) > 10*time.Second; i++ {
		for _, p := range []*lab.Laptop{w.alice, w.bob} {
			if err := p.KillDaemon(w.t.Context()); err != nil {
				w.t.Error(err)
			}
			w.t.Logf("%s: kithd of %s was killed", time.Now().Format("15:04:05"), p.Name())
			if i%2 == 1 {
				time.Sleep(10 * time.Second)
			}
		}
		time.Sleep(min(time.Until(end), time.Minute-time.Duration(i%2)*20*time.Second))
	}
}

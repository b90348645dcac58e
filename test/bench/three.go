package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// third makes Services of a guest at bob and sees when carol has their endpoints. Then it lets that guest send to one at carol, by way of their home
// and then directly, and by turns to a pod at home, which is the first half of that way. Three laptops share the machine, in a lab of their own: what the other groups measure is for two.
func third(ctx context.Context, r *rig) (err error) {
	home, down, err := three(ctx, r, "third")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	at := map[string]string{}
	for name, node := range map[string]string{"near": abroad, "far": "kith-carol", "there": "alice"} {
		if err := home.start(ctx, home.alice, namespace, pod(name, node, load())); err != nil {
			return err
		}
		p, err := home.alice.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at[name] = p.Status.PodIP
	}
	carol, err := connect(home.lab.Laptop("carol"))
	if err != nil {
		return err
	}
	if err := home.serve(ctx, "service of a guest at bob", "near", carol); err != nil {
		return err
	}
	if err := home.farAndNear(ctx, r, "by home", at); err != nil {
		return err
	}
	for _, provider := range []string{"bob", "carol"} {
		if out, err := home.lab.Laptop(provider).Kith(ctx, "share", "--direct"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	for _, provider := range []string{"bob", "carol"} {
		if _, err := until(ctx, provider+" has a way past alice", func() bool {
			out, err := home.lab.Laptop(provider).Kith(ctx, "peers", "-o", "json")
			return err == nil && strings.Contains(out, `"direct":`) // whatever its state: what ended a moment ago may still be answered
		}); err != nil {
			return err
		}
	}
	return home.farAndNear(ctx, r, "directly", at)
}

// farAndNear sends from a guest at bob to one at carol and, by turns, to a pod at home.
func (home *rig) farAndNear(ctx context.Context, r *rig, how string, at map[string]string) error {
	ways := []string{"far", "there"}
	for i := range max(4, r.rounds/2) {
		for _, n := range []int{1, manyStreams} {
			got := map[string]sent{}
			for k := range ways {
				to := ways[(i+k)%2]
				var s sent
				out, err := home.alice.Kubectl(ctx, append(append([]string{"-n", namespace, "exec", "near", "--", "/app"}, loadArgs(n)...), at[to]+":7000")...)
				if err == nil {
					err = json.Unmarshal([]byte(out), &s)
				}
				if err != nil || s.Broken != "" {
					return fmt.Errorf("near to %s, %s: %s %w", to, streamsWord(n), s.Broken, err)
				}
				got[to] = s
			}
			what := "TCP, guest to guest of another provider, " + streamsWord(n)
			r.report.Pair(what, "Mbit/s", how, got["far"].MBits, "to home", got["there"].MBits)
			r.report.Pair("answers meanwhile, guest to guest, "+streamsWord(n)+", median", "ms", how, got["far"].P50, "to home", got["there"].P50)
		}
	}
	return nil
}

// three brings up a lab of three laptops, where alice consumes from bob and carol, with her namespace offloaded. Call down in any case.
func three(ctx context.Context, r *rig, name string) (home *rig, down func() error, err error) {
	if home, down, err = threeUp(ctx, r, name); err != nil {
		return nil, down, err
	}
	for _, provider := range []string{"bob", "carol"} {
		if err := accept(ctx, home.lab.Laptop("alice"), home.lab.Laptop(provider), "--cpu", "400m", "--memory", "512Mi", "--pods", "40"); err != nil {
			return nil, down, fmt.Errorf("alice and %s: %w", provider, err)
		}
	}
	if err := home.ensureNamespace(ctx); err != nil {
		return nil, down, err
	}
	return home, down, says(home.alice.Kith(ctx, "offload", namespace))
}

// threeUp brings up a lab of three laptops that have no contracts. Call down in any case.
func threeUp(ctx context.Context, r *rig, name string) (home *rig, down func() error, err error) {
	down = func() error { return nil }
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return nil, down, err
	}
	defer os.RemoveAll(dir)
	archives, err := images.Build(ctx, dir)
	if err != nil {
		return nil, down, err
	}
	l, err := lab.Up(ctx, lab.Options{Name: r.options.lab + name, Laptops: 3, Images: archives})
	if l != nil {
		down = func() error { return l.Down(context.WithoutCancel(ctx)) }
	}
	if err != nil {
		return nil, down, err
	}
	home = &rig{options: r.options, report: r.report, lab: l}
	if home.alice, err = connect(l.Laptop("alice")); err != nil {
		return nil, down, err
	}
	if home.bob, err = connect(l.Laptop("bob")); err != nil {
		return nil, down, err
	}
	return home, down, nil
}

// accept has a provider accept what a consumer asks for, by the commands that their owners would use.
func accept(ctx context.Context, consumer, provider *lab.Laptop, amounts ...string) error {
	what := func(what string, is func() bool) error {
		_, err := until(ctx, what, is)
		return err
	}
	if err := what("it asks", func() bool {
		_, err := consumer.Kith(ctx, append([]string{"peer", provider.Name(), "--wait=false"}, amounts...)...)
		time.Sleep(200 * time.Millisecond) // questions have a rate
		return err == nil
	}); err != nil {
		return err
	}
	code := ""
	if err := what("the question arrives", func() bool {
		var list []struct{ Code, Direction string }
		out, err := provider.Kith(ctx, "requests", "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &list) != nil {
			return false
		}
		for _, q := range list {
			if q.Direction == "incoming" {
				code = q.Code
			}
		}
		return code != ""
	}); err != nil {
		return err
	}
	if out, err := provider.Kith(ctx, "accept", consumer.Name(), "--yes"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := what("its owner confirms", func() bool {
		_, err := consumer.Kith(ctx, "confirm", provider.Name(), "--code", code)
		return err == nil
	}); err != nil {
		return err
	}
	return what("its node is Ready", func() bool {
		out, err := consumer.Kubectl(ctx, "get", "node", "kith-"+provider.Name(), "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && strings.TrimSpace(out) == "True"
	})
}

const (
	replicas = 10
	common   = 32 << 20 // what all versions of the image have beside the program, in bytes
	built    = 1 << 20  // what each version has of its own
)

// rollout updates a Deployment of ten pods on two peers to a version of its image that only home has, of which the peers have all but the last
// layer, as after a developer's next build; by turns with one whose image every laptop has.
func rollout(ctx context.Context, r *rig) (err error) {
	home, down, err := three(ctx, r, "rollout")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	if out, err := home.alice.Kith(ctx, "offload", namespace, "--strategy", "remote"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	base, err := echoImage(ctx, dir)
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "roll.tar")
	if base, _, err = withLayer(base, common, "shop/roll:base", archive); err != nil {
		return err
	}
	build := func(version int) (name string, err error) {
		name = fmt.Sprintf("shop/roll:%d", version)
		if _, _, err = withLayer(base, built, name, archive); err != nil {
			return "", err
		}
		f, err := os.Open(archive)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = home.alice.kith.LoadImages(ctx, f, "")
		return name, err
	}
	first, err := build(0)
	if err != nil {
		return err
	}
	ways := []string{"home", "everywhere"}
	for name, image := range map[string]string{"home": first, "everywhere": "kith.dev/echo:1"} {
		if err := home.deploy(ctx, name, image); err != nil {
			return err
		}
	}
	rounds := max(3, r.rounds/3)
	for i := range rounds {
		took := map[string]float64{}
		next, err := build(i + 1)
		if err != nil {
			return err
		}
		for k := range ways {
			name := ways[(i+k)%2]
			image := "kith.dev/echo:1"
			if name == "home" {
				image = next
			}
			d, err := home.update(ctx, name, image, i)
			if err != nil {
				return err
			}
			took[name] = d.Seconds()
		}
		r.report.Pair("rolling update of ten pods on two peers", "s", "an image that only home has", took["home"], "one that is everywhere", took["everywhere"])
	}
	return nil
}

func (r *rig) deploy(ctx context.Context, name, image string) error {
	labels := map[string]string{"app": name}
	_, err := r.alice.kube.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("", container("app", image))},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return r.rolled(ctx, name, 1)
}

// update changes the image of a Deployment, or restarts it, and says how long it took until all its pods were new and ready.
func (r *rig) update(ctx context.Context, name, image string, round int) (time.Duration, error) {
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}},"spec":{"containers":[{"name":"app","image":%q}]}}}}`, round, image)
	d, err := r.alice.kube.AppsV1().Deployments(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err == nil {
		err = r.rolled(ctx, name, d.Generation)
	}
	return time.Since(began), err
}

func (r *rig) rolled(ctx context.Context, name string, generation int64) error {
	_, err := until(ctx, "Deployment "+name+" is rolled out", func() bool {
		d, err := r.alice.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		s := d.Status
		return s.ObservedGeneration >= generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas == replicas
	})
	return err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// third lets a guest at bob send to one at carol, by way of their home, and by turns to a pod at home, which is the first half of that
// way. Three laptops share the machine, in a lab of their own: what the other groups measure is for two.
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
			r.report.pair(what, "Mbit/s", "by home", got["far"].MBits, "to home", got["there"].MBits)
			r.report.pair("answers meanwhile, guest to guest, "+streamsWord(n)+", median", "ms", "by home", got["far"].P50, "to home", got["there"].P50)
		}
	}
	return nil
}

// three brings up a lab of three laptops, where alice consumes from bob and carol, with her namespace offloaded. Call down in any case.
func three(ctx context.Context, r *rig, name string) (home *rig, down func() error, err error) {
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
	home = &rig{options: r.options, report: r.report}
	if home.alice, err = connect(l.Laptop("alice")); err != nil {
		return nil, down, err
	}
	if home.bob, err = connect(l.Laptop("bob")); err != nil {
		return nil, down, err
	}
	for _, provider := range []string{"bob", "carol"} {
		if err := accept(ctx, l.Laptop("alice"), l.Laptop(provider)); err != nil {
			return nil, down, fmt.Errorf("alice and %s: %w", provider, err)
		}
	}
	if err := home.ensureNamespace(ctx); err != nil {
		return nil, down, err
	}
	if out, err := home.alice.Kith(ctx, "offload", namespace); err != nil {
		return nil, down, fmt.Errorf("%w\n%s", err, out)
	}
	return home, down, nil
}

// accept has a provider accept what a consumer asks for, by the commands that their owners would use.
func accept(ctx context.Context, consumer, provider *lab.Laptop) error {
	what := func(what string, is func() bool) error {
		_, err := until(ctx, what, is)
		return err
	}
	if err := what("it asks", func() bool {
		_, err := consumer.Kith(ctx, "peer", provider.Name(), "--cpu", "400m", "--memory", "512Mi", "--pods", "40", "--wait=false")
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

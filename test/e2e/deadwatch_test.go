//go:build lab

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"kith.dev/test/lab"
)

// deadWatch says what the goroutines of an engine stand at that was never told of the default SharingPolicy, as a watch of its API server's
// cache was seen to be on busy machines: it is there, and is not in the list of the cache. "" where that is not so. The engine ends.
func deadWatch(p *lab.Laptop) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const list, named = "/apis/kith.dev/v1alpha1/sharingpolicies", `"name":"default"`
	there, err := p.Kubectl(ctx, "get", "--raw", list)
	if err != nil || !strings.Contains(there, named) {
		return ""
	}
	cached, err := p.Kubectl(ctx, "get", "--raw", list+"?resourceVersion=0")
	if err != nil || strings.Contains(cached, named) {
		return ""
	}
	_, _, _ = p.Exec(ctx, "sh", "-c", "kill -QUIT $(pidof kith-k8s); sleep 3")
	said, _, err := p.Exec(ctx, "cat", "/var/lib/kith/k8s/server.log")
	return fmt.Sprintf("its API server does not know of what it stores: %s\n%s (%v)", cached, standing(said), err)
}

// ofStack are the parts of a frame that differ between goroutines which stand at the same place.
var ofStack = regexp.MustCompile(`goroutine [0-9]+| gp=.*| in goroutine.*|\((0x|\.\.\.|\{)[^*]*\)$`)

// ways are what is between the API server and its datastore.
var ways = regexp.MustCompile(`kine/|etcd3|client/v3|storage/cacher|modernc.org/sqlite`)

// standing counts the goroutines between the API server and its datastore, by where they stand.
func standing(dump string) string {
	count := map[string]int{}
	for stack := range strings.SplitSeq(dump, "\n\n") {
		if !strings.HasPrefix(strings.TrimSpace(stack), "goroutine ") || !ways.MatchString(stack) {
			continue
		}
		var functions []string
		for line := range strings.Lines(stack) {
			if line = ofStack.ReplaceAllString(strings.TrimRight(line, "\n"), ""); line != "" && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "runtime.") && len(functions) < 10 {
				functions = append(functions, line)
			}
		}
		count[strings.Join(functions, "\n    ")]++
	}
	var all []string
	for stack, n := range count {
		all = append(all, fmt.Sprintf("%4d %s", n, stack))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

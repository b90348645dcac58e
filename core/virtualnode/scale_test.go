package virtualnode

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestManyPods has KITH_TEST_PODS pods go abroad at once; their containers are only claimed to run.
func TestManyPods(t *testing.T) {
	pods, err := strconv.Atoi(os.Getenv("KITH_TEST_PODS"))
	if err != nil {
		t.Skip("KITH_TEST_PODS is not set: how many pods?")
	}
	c := newCluster(t)
	c.provider.pretend = true
	c.until(5*time.Second, "node is Ready", func() bool { return c.condition(corev1.NodeReady).Status == corev1.ConditionTrue })
	began := time.Now()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := i; j < pods; j += 8 {
				c.run(fmt.Sprintf("p-%d", j), func(p *corev1.Pod) { p.Spec.NodeName = testNode })
			}
		})
	}
	group.Wait()
	t.Logf("%d pods made in %s", pods, time.Since(began))
	running := func() int {
		list, err := c.client.CoreV1().Pods(testNamespace).List(context.Background(), metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		if err != nil {
			return 0
		}
		return len(list.Items)
	}
	c.until(5*time.Minute, "all run", func() bool { time.Sleep(time.Second); return running() == pods })
	t.Logf("%d pods run after %s", pods, time.Since(began))

	before := cpuTime(t)
	c.provider.pause(true)
	time.Sleep(20 * time.Second)
	t.Logf("idle with %d pods: %.1f %% of one core (with the test's own Kubelet)", pods, 100*float64(cpuTime(t)-before)/float64(20*time.Second))
	c.node.SetReady(false, "", "")
	c.node.SetReady(true, "", "")
	time.Sleep(5 * time.Second)
	t.Logf("a healed link costs %s of CPU", cpuTime(t)-before)
	c.provider.pause(false)

	began = time.Now()
	if err := c.client.CoreV1().Pods(testNamespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(5*time.Minute, "all gone", func() bool {
		list := &v1alpha1.OffloadedPodList{}
		err := c.provider.rest.Get().Namespace(testTwin).Resource(resource).Do(context.Background()).Into(list)
		return err == nil && len(list.Items) == 0 && len(c.node.pods.list()) == 0
	})
	t.Logf("%d pods deleted in %s", pods, time.Since(began))
}

// TestHold keeps a node up for KITH_TEST_HOLD, to look around with kubectl.
func TestHold(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("KITH_TEST_HOLD"))
	if err != nil {
		t.Skip("KITH_TEST_HOLD is not set: how long?")
	}
	newCluster(t)
	time.Sleep(d)
}

package component

import (
	"context"
	"fmt"
	"net/netip"

	cm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	cmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// unlimited is a rate of requests that client-go takes for no limit. Upstream's limits (20 a second for the controllers, 50 for the
// scheduler and the kubelet) keep thousands of nodes from drowning one API server: with them a Deployment comes at exactly 20
// pods a second, however fast the laptop is. Here all clients are in the server's own process, which answers as fast as it can
// and shares that fairly among them (API Priority and Fairness, KEP-1040). How many controllers work at once is left as it is:
// a laptop has few processors, and none of its controllers was seen to wait for another worker.
const unlimited = "-1"

// ControllerManager is what the controller-manager is told. Run it only when the API server is ready: before
// the RBAC bootstrap it is refused, and gives up for good.
type ControllerManager struct {
	PKI
	ClusterCIDR, ServiceCIDR netip.Prefix
}

// Run runs the controllers until ctx ends. Ranges are not given out to nodes: there is one real node, whose
// range is fixed, and virtual ones, which need none.
func (c ControllerManager) Run(ctx context.Context) error {
	o, err := cmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	all, off, aliases := cm.KnownControllers(), cm.ControllersDisabledByDefault(), cm.ControllerAliases()
	err = parse("kube-controller-manager", o.Flags(all, off, aliases), map[string]string{
		"kubeconfig":               c.kubeconfig("controller-manager"),
		"secure-port":              "0",
		"allocate-node-cidrs":      "false",
		"cluster-cidr":             c.ClusterCIDR.String(),
		"service-cluster-ip-range": c.ServiceCIDR.String(),
		"leader-elect":             "false",
		// The CSI plugin keeps the node's name in a global variable, which the attach-detach controller and the kubelet
		// each set: in one process, whoever is second wins, and the kubelet, then nameless, ends the process after
		// 140 s. A laptop attaches no remote disks, so the controller stays out; see also Kubelet.
		"controllers":                      "*,-persistentvolume-attach-detach-controller",
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": c.key("service-account"),
		"root-ca-file":                     c.crt("ca"),
		"cluster-signing-cert-file":        c.crt("ca"),
		"cluster-signing-key-file":         c.key("ca"),
		"profiling":                        "false",
		"kube-api-qps":                     unlimited,
	})
	if err != nil {
		return err
	}
	config, err := o.Config(ctx, all, off, aliases)
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	return cm.Run(ctx, config.Complete())
}

// Scheduler is what the scheduler is told.
type Scheduler struct{ PKI }

// Run schedules until ctx ends.
func (s Scheduler) Run(ctx context.Context) error {
	o := scheduleroptions.NewOptions()
	err := parse("kube-scheduler", *o.Flags, map[string]string{
		"kubeconfig":   s.kubeconfig("scheduler"),
		"secure-port":  "0",
		"leader-elect": "false",
		"profiling":    "false",
		"kube-api-qps": unlimited,
	})
	if err != nil {
		return err
	}
	config, sched, err := scheduler.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	err = scheduler.Run(ctx, config, sched)
	if ctx.Err() != nil {
		return nil // it calls every end an error
	}
	return err
}

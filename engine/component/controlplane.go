package component

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/component-base/configz"
	cm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	cmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"kith.dev/core/net/netplan"
)

// unlimited is a rate of requests that client-go takes for no limit. Upstream's limits (20 a second for the controllers, 50 for the
// scheduler and the kubelet) keep thousands of nodes from drowning one API server: with them a Deployment comes at exactly 20
// pods a second, however fast the laptop is. Here all clients are in the server's own process, which answers as fast as it can
// and shares that fairly among them (API Priority and Fairness, KEP-1040). How many controllers work at once is left as it is:
// a laptop has few processors, and none of its controllers was seen to wait for another worker.
const unlimited = "-1"

// Deciding are the controllers that decide what runs, where and how long, and on which volume. While another cluster decides that for
// this laptop they must not: it has none of their objects, and they know nothing of its. All others keep house: they finish what was
// decided (deletions, garbage, endpoints of the pods that run) and make what every namespace has.
var Deciding = []string{
	names.DeploymentController, names.ReplicaSetController, names.ReplicationControllerController, names.StatefulSetController,
	names.DaemonSetController, names.JobController, names.CronJobController, names.HorizontalPodAutoscalerController,
	names.TTLAfterFinishedController, // ends the owner's objects, which are to be as they were when the laptop decides again
	names.DisruptionController,       // says which pods may be evicted, from what the controllers above want
	names.NodeLifecycleController, names.TaintEvictionController, names.DeviceTaintEvictionController,
	// Guests have no claims, so there is nothing to bind but the owner's.
	names.PersistentVolumeBinderController, names.PersistentVolumeExpanderController, names.EphemeralVolumeController,
}

// ControllerManager is what the controller-manager is told. Run it only when the API server is ready: before
// the RBAC bootstrap it is refused, and gives up for good.
//
// It runs all controllers or all but those of Deciding. That is one or the other manager, never two side by side: each has a cache of
// most objects of its own.
type ControllerManager struct {
	PKI
	ClusterCIDR, ServiceCIDR netip.Prefix
	IPv6                     netplan.Cluster6  // beside them
	Deciding                 bool              // with the controllers that decide
	Flags                    map[string]string // what somebody else sets, before what is set here
	// NodeRanges is what nodes are given ranges of pods out of, a /24 each. The zero value: none is given, for there is one real node,
	// whose range is fixed, and virtual ones, which need none; and tokens with which nodes may join are not looked after.
	NodeRanges netip.Prefix
}

// Run runs the controllers until ctx ends, and returns when all have. It may run again afterwards, unless it returned an error: upstream then keeps the
// name of its informers.
func (c ControllerManager) Run(ctx context.Context) error {
	o, err := cmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	all, off, aliases := cm.KnownControllers(), cm.ControllersDisabledByDefault(), cm.ControllerAliases()
	flags := map[string]string{
		"kubeconfig":                       c.kubeconfig("controller-manager"),
		"secure-port":                      "0",
		"allocate-node-cidrs":              "false",
		"cluster-cidr":                     both(c.ClusterCIDR, c.IPv6.Pods),
		"service-cluster-ip-range":         both(c.ServiceCIDR, c.IPv6.Services),
		"leader-elect":                     "false",
		"controllers":                      c.controllers(),
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": c.key("service-account"),
		"root-ca-file":                     c.crt("ca"),
		"cluster-signing-cert-file":        c.crt("ca"),
		"cluster-signing-key-file":         c.key("ca"),
		"profiling":                        "false",
		"kube-api-qps":                     unlimited,
	}
	if c.NodeRanges.IsValid() {
		flags["allocate-node-cidrs"], flags["cluster-cidr"] = "true", c.NodeRanges.String()
	}
	if err := parse("kube-controller-manager", o.Flags(all, off, aliases), with(c.Flags, flags)); err != nil {
		return err
	}
	config, err := o.Config(ctx, all, off, aliases)
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	defer configz.Delete(cm.ConfigzName) // which is registered once in a process
	if err := cm.Run(ctx, config.Complete()); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	return nil
}

// controllers are those to run, as upstream's flag names them.
func (c ControllerManager) controllers() string {
	// The CSI plugin keeps the node's name in a global variable, which the attach-detach controller and the kubelet
	// each set: in one process, whoever is second wins, and the kubelet, then nameless, ends the process after
	// 140 s. A laptop attaches no remote disks, so the controller stays out; see also Kubelet.
	all := "*,-" + names.PersistentVolumeAttachDetachController
	if c.NodeRanges.IsValid() {
		all += "," + names.BootstrapSignerController + "," + names.TokenCleanerController
	}
	if !c.Deciding {
		all += ",-" + strings.Join(Deciding, ",-")
	}
	return all
}

// Scheduler is what the scheduler is told.
type Scheduler struct{ PKI }

// Run schedules until ctx ends. It may run again afterwards.
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
	if ctx.Err() != nil {
		return nil
	} else if err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	defer configz.Delete("componentconfig") // its name for it, which is registered once in a process
	err = scheduler.Run(ctx, config, sched)
	if ctx.Err() == nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	config.InformerFactory.Shutdown() // which it leaves to the end of its process
	if config.DynInformerFactory != nil {
		config.DynInformerFactory.Shutdown()
	}
	return nil // it calls every end an error
}

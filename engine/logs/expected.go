package logs

// expected are the lines that a healthy start has: how the message begins, what it or the error beside it contains, and why it is
// none. Each was seen; one that no start has any more should go. Always: it comes again and again, not only at the start.
var expected = []struct {
	message, err string
	always       bool
	why          string
}{
	{message: "The manifest file is empty, ignoring.", always: true, why: "a file of metrics' labels that nobody named; upstream tells no option given from an empty one"},

	{message: "Error removing old endpoints from kubernetes service", err: "refusing to erase all endpoints",
		why: "there is one API server, and its predecessor here has run out; the next line upstream has for it is an error as well"},
	{message: "Found stale data, removed previous endpoints on kubernetes service", why: "the same, when its predecessor ended a moment ago"},
	{message: "Unhandled Error", err: "failed to fetch openapi paths", why: "the API server asks itself before it is ready, and asks again"},
	{message: "Failed to watch", err: `is forbidden: User "kith:dns"`, why: "the authorizer hears of new roles a moment after they are there"},

	{message: "Timeout or abort while handling", why: "who asked did not wait for a server that is still starting, and asks again"},
	{message: "Post-timeout activity", why: "the same, when the answer was ready after all"},
	{message: "Failed to ensure lease exists, will retry", err: `namespaces "kube-system" not found`, why: "the namespace is being made"},
	{message: "Error while syncing ConfigMap", err: `namespaces "kube-system" not found`, why: "the namespace is being made"},
	{message: "Unhandled Error", err: `configmaps "kube-root-ca.crt" already exists`, always: true, why: "a controller hears of its own write a moment later"},
	{message: "Unhandled Error", err: "is not as new as written version", always: true, why: "a controller hears of its own write a moment later, and looks again"},

	{message: "Deletion of namespace failed", err: "Resource=pods", always: true,
		why: "its pods are still ending; it is looked at again, and the namespace's conditions say what is left"},

	{message: "Unhandled Error", err: "failed to find resource referenced by paramKind",
		why: "custom resources are served a moment later than policies are read; until then a peer's node itself turns away what they refuse"},
	{message: "Error on socket receive", err: "use of closed network connection", always: true, why: "a terminal, log or forwarded port was closed by who had opened it"},
	{message: "Error proxying data", err: "unexpected EOF", always: true, why: "the same, at the other end"},
	{message: "Error proxying data", err: "broken pipe", always: true, why: "the same"},
	{message: "Unhandled Error", err: "error updating signature for csr: Operation cannot be fulfilled", why: "two controllers wrote at once, and the later one looks again"},

	// What decides, and the controllers beside it, are stopped and started while the rest goes on (package deciding).
	{message: "Unable to sync caches", always: true, why: "a controller was told to stop while it was starting"},
	{message: "Unable start event watcher", err: "broadcaster already stopped", always: true, why: "the same"},
	{message: "Device taint processing leading to Pod eviction failed", err: "because it has stopped already", always: true, why: "the same"},
	{message: "handlers are not fully synchronized", err: "context canceled", always: true, why: "the same, of the scheduler"},
	{message: "Unhandled Error", err: "timed out waiting for dependency graph builder sync", always: true, why: "the same, of the garbage collector"},
	{message: "Unhandled Error", err: "context canceled", always: true, why: "a controller was told to stop while it was at work, or who asked the API server was"},
	{message: "Failed to watch", err: "context canceled", always: true, why: "the same"},
	{message: "Getting lastest possible tracked_since time", err: "context canceled", always: true, why: "the same"},
	{message: "Timed out waiting for quota monitor sync", always: true, why: "the same"},
	{message: "Unable to record event", err: "broadcaster already stopped", always: true, why: "the same"},
	{message: "Unable to write event", err: "context canceled", always: true, why: "the same"},
	{message: "Unexpected error when reading response body", err: "context canceled", always: true, why: "the same"},
	{message: "Unhandled Error", err: "http: Handler timeout", always: true, why: "the API server's words for one who did not wait for its answer"},
	{message: "Unhandled Error", err: "http2: stream closed", always: true, why: "the same"},
	{message: "unable to register metrics", err: "duplicate metrics collector registration attempted", always: true, why: "a controller that was there before counts on"},

	// The kubelet starts to work on pods, leases and statistics while it is still registering its node.
	{message: "Error getting the current node from lister", err: "not found", why: "the node is being registered"},
	{message: "Unable to register mirror pod because node is not registered yet", err: "not found", why: "the node is being registered"},
	{message: "Failed to get node when trying to set owner ref to the node lease", err: "not found", why: "the node is being registered"},
	{message: "Error updating node status, will retry", err: "not found", why: "the node is being registered"},
	{message: "Eviction manager: failed to get summary stats", err: "failed to get node info", why: "the node is being registered"},
	{message: "Failed to get status for pod", err: "no relationship found between node", always: true, why: "the authorizer hears of a pod a moment after the kubelet"},
	{message: "Failed to watch", err: "no relationship found between node", always: true, why: "the same, of what the pod names"},
	{message: "Failed to initialize CSINode", err: "not found", why: "the node is being registered"},
	{message: "Skipping pod synchronization", err: "yet", why: "it has not looked at the container runtime yet"},
	{message: "Image garbage collection failed once", err: "invalid capacity 0", why: "statistics are being gathered"},
	{message: "eviction manager: failed to check if we have separate container filesystem", err: "no imagefs label", why: "statistics are being gathered"},
	{message: "Failed to read data from checkpoint", err: "checkpoint is not found", why: "nothing is exposed by a device plugin"},
	{message: "ContainerStatus from runtime service failed", err: "code = Canceled", always: true, why: "who asked for a log or a terminal has gone"},
	{message: "ContainerStatus from runtime service failed", err: "code = NotFound", always: true, why: "the container was removed between a list and a look at it"},
	{message: "failed to read memory cgroup config for the pod", err: "no such file or directory", why: "after a boot the cgroups of pods are made anew"},
	{message: "failed to read memory cgroup limits for the pod", err: "no such file or directory", why: "after a boot the cgroups of pods are made anew"},

	{message: "exiting analyzeLines. OOM events will not be reported.", why: "the kernel's log cannot be read, as in a container; the pods' status says it all the same"},
	{message: "Failed to ensure process in container with oom score", err: "permission denied", always: true,
		why: "without CAP_SYS_RESOURCE, as in a container, containerd keeps the score that it has"},
}

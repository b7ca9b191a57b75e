"""Where a step's time goes: kernels by the names that they have on a GPU, gaps by when they ran."""

# ruff: noqa: E501 (names of kernels)

import pytest

from bench.gpu.profiling import Kernel, group, summary

NAMES = {
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128>": "attention",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x64_4x1x1_kernel0_0": "attention",
    "void cudnn::fusion::compute_dot_do_o_specialized<true, __nv_bfloat16, 64>": "attention",
    "forward_kernel": "attention",
    "backward_kernel": "attention",
    "query_kernel": "attention",
    "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN": "matmuls",
    "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_splitK_NTN": "matmuls",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false, float>": "matmuls",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<>>": "matmuls",
    "triton_tem_fused_mm_0": "matmuls",
    "triton_poi_fused_gelu_gelu_backward_view_0": "elementwise",
    "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_sum_view_1": "elementwise",
    "triton_red_fused__log_softmax__to_copy_argmax_prepare_softmax_online_4": "elementwise",
    "triton_poi_fused_addmm_scaled_dot_product_attention_3": "elementwise",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>": "elementwise",
    "void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<c10::BFloat16>, {lambda(float)}>": "elementwise",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float>": "elementwise",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimizer",
    "Memset (Device)": "copies",
    "Memcpy HtoD (Pinned -> Device)": "copies",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>": "copies",
    "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub>": "other",
}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_kernel_belongs_to_the_class_of_its_work(name: str, kind: str) -> None:
    assert group(name) == kind


def test_times_and_gaps_of_a_worked_example() -> None:
    """Two steps of 1 ms. In each a matmul, 2 µs later a copy beside which an attention kernel runs
    on, then a wait."""
    kernels = []
    for start in (0.0, 1000.0):
        kernels += [Kernel("nvjet", start, start + 400), Kernel("Memset", start + 402, start + 410)]
        kernels += [Kernel("flash_fwd", start + 405, start + 902)]
    actual = summary(reversed(kernels), step_ms=0.95, steps=2)
    assert actual["kernel_ms"] == 0.905
    assert actual["busy_ms"] == 0.9
    assert actual["idle"] == pytest.approx(1 - 0.9 / 0.95, abs=1e-4)
    assert actual["classes"] == {"attention": 0.497, "matmuls": 0.4, "copies": 0.008}
    assert actual["short_gaps"] == {"ms": 0.002, "count": 1.0}
    assert actual["long_gaps"] == {"ms": 0.049, "count": 0.5}
    assert actual["gaps"] == [{"ms": 0.098, "after": "flash_fwd", "before": "nvjet"}]
    assert [kernel["name"] for kernel in actual["top"]] == ["flash_fwd", "nvjet", "Memset"]
    assert actual["kernels"] == 3

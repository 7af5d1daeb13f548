# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slug="lab-traces"
# # 实验：录一份 trace，再拆开来看
#
# 一步训练里，每个运算各做了什么？在这里，你将给本书的训练程序录一份性能剖析记录（trace），用文件里的形状数出 FLOPs，再看时间花在哪里。本实验与[《性能剖析》](../traces.md)一章配套。
#
# 这个笔记本可以原样从头运行到尾。有 GPU 就读 kernel，没有就读 CPU 上的运算，两者的事件格式相同。它需要本书的库，《性能剖析》那一页的笔记本在第一个单元格里安装它。打印出来的时间，是运行它的那台机器的。

# %% [markdown] slug="record"
# ## 记录一步
#
# 第一步不记录，第二步用来预热剖析器，第三步才算数。

# %% [markdown] slug="flops"
# ## 由形状得到 FLOPs
#
# 线性层的每次矩阵乘法，都是一个带形状的 `aten::mm` 或 `aten::addmm`。加起来应当是每个矩阵参数、每个词元 6 FLOPs，其中前向 2，反向 4。

# %% [markdown] slug="time"
# ## 时间花在哪里
#
# 运算会嵌套，例如 `aten::linear` 会调用 `aten::addmm`。减去内层运算的时间，每段时间就只算一次。哪些运算自身用时最多？在 CPU 上，这就是计算本身，在 GPU 上则只是启动。

# %% [markdown] slug="kernels"
# ## 如果有 GPU，看看 kernel
#
# 本书的库读同一个文件，给出在忙、空闲和尚未启动的时间。没有 GPU，就没有 kernel 可读。

# %% [markdown] slug="your-own"
# ## 换成你自己的
#
# 上下文加长到四倍，哪一项的比例会变？词表加大到十倍呢？改第一个单元格里的常数，再运行一遍，断言在各种取值下都成立。然后把 `step` 换成你自己的一步训练。
